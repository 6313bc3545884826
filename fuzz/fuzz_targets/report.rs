//! Length-prefixed messages of a runner about one of its threads. The supervisor accepts or rejects them and continues
//! to serve.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::bytes::Bytes;
use troupe_fuzz::{frames::frames, harness};
use troupe_proto::supervisor::v1::CreateSessionRequest;

fuzz_target!(|bytes: &[u8]| {
    let opening = CreateSessionRequest {
        message: Some("Begin.".to_owned()),
        ..CreateSessionRequest::default()
    };
    harness::run(opening, |harness| async move {
        let (outgoing, mut incoming) = harness.attach().await;
        for frame in frames(bytes) {
            // The supervisor may end the stream because of a message.
            if outgoing.send(Bytes::copy_from_slice(frame)).await.is_err() {
                break;
            }
        }
        drop(outgoing);
        while let Ok(Some(_)) = incoming.message().await {}
        harness.check_alive().await;
    });
});
