//! Calls of the registry: a line with the method, followed by the bytes of the request.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::bytes::Bytes;
use troupe_fuzz::{calls, registry};
use troupe_proto::registry::v1::agent_registry_service_server::SERVICE_NAME;

async fn call(path: &str, request: Bytes) -> Result<(), tonic::Status> {
    let answers = calls::open(registry::server(), path, None, tokio_stream::once(request)).await?;
    calls::read_answers(answers).await
}

fuzz_target!(|bytes: &[u8]| {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        return;
    };
    let Ok(method) = str::from_utf8(&bytes[..end]) else {
        return;
    };
    let path = format!("/{SERVICE_NAME}/{method}");
    let request = Bytes::copy_from_slice(&bytes[end + 1..]);
    calls::check(calls::run(call(&path, request)));
});
