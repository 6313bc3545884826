//! Input of `troupe mcp`: lines of MCP or arbitrary bytes. The server reads all input and writes one JSON-RPC message
//! per line.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, duplex};
use tokio_util::sync::CancellationToken;
use troupe_fuzz::harness;
use troupe_proto::supervisor::v1::CreateSessionRequest;
use troupe_runner::mcp::{McpError, ToolServer};

/// Maximum size of unread answers, in bytes.
const WAITING_BYTES: usize = 64 * 1024;

/// Sends the input, closes the connection and returns the output.
async fn exchange(server: ToolServer, input: Vec<u8>) -> (Result<(), McpError>, String) {
    let (to_client, mut from_server) = duplex(WAITING_BYTES);
    let mut output = String::new();
    let serving = server.serve(Cursor::new(input), to_client, CancellationToken::new());
    let (served, read) = tokio::join!(serving, from_server.read_to_string(&mut output));
    read.expect("the output is UTF-8");
    (served, output)
}

fuzz_target!(|bytes: &[u8]| {
    let input = bytes.to_vec();
    harness::run(CreateSessionRequest::default(), |harness| async move {
        let (served, output) = exchange(harness.tools().await, input).await;
        match served {
            Ok(()) | Err(McpError::Handshake(_)) => {}
            Err(error) => panic!("{error}"),
        }
        for line in output.lines() {
            let message: Value = serde_json::from_str(line).expect("an answer is JSON");
            assert_eq!(message["jsonrpc"], "2.0", "{line}");
        }
        harness.check_alive().await;
    });
});
