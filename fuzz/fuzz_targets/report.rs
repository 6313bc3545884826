//! Length-prefixed messages of a runner about one of its threads. The supervisor accepts or rejects them and continues
//! to serve.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::bytes::Bytes;
use troupe_fuzz::{frames::frames, harness};
use troupe_proto::supervisor::v1::CreateSessionRequest;

fuzz_target!(|bytes: &[u8]| {
    let executed = CreateSessionRequest {
        message: Some("Begin.".to_owned()),
        ..CreateSessionRequest::default()
    };
    harness::play(executed, |harness| async move {
        let (say, mut heard) = harness.attach().await;
        for frame in frames(bytes) {
            // The supervisor may end a stream because of its messages.
            if say.send(Bytes::copy_from_slice(frame)).await.is_err() {
                break;
            }
        }
        drop(say);
        while let Ok(Some(_)) = heard.message().await {}
        harness.answers_still().await;
    });
});
