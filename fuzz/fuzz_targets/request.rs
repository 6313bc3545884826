//! Calls of the supervisor. An input is a list of length-prefixed calls: a line with the caller and the method,
//! followed by the bytes of the request. Each call gets a response or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::{Message, bytes::Bytes};
use troupe_fuzz::{calls, frames::frames, harness};
use troupe_proto::supervisor::v1::{CreateSessionRequest, UpdateSessionRequest, Webhook};

/// Maximum number of calls per input.
const MAX_CALLS: usize = 16;

/// Returns the caller, the method and the request.
fn read(frame: &[u8]) -> Option<(&str, &str, Bytes)> {
    let end = frame.iter().position(|byte| *byte == b'\n')?;
    let (caller, method) = str::from_utf8(&frame[..end]).ok()?.split_once(' ')?;
    let is_name = method.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_name.then(|| (caller, method, Bytes::copy_from_slice(&frame[end + 1..])))
}

/// Modifies the request so that no webhook is sent out of this process: a request with webhooks gets an additional
/// webhook without a URL, so that the request is rejected after its other webhooks are validated.
fn confined(method: &str, request: Bytes) -> Bytes {
    match method {
        "CreateSession" => with_bad_webhook(request, |asked: &mut CreateSessionRequest| &mut asked.webhooks),
        "UpdateSession" => with_bad_webhook(request, |asked: &mut UpdateSessionRequest| &mut asked.webhooks),
        _ => request,
    }
}

fn with_bad_webhook<M: Message + Default>(request: Bytes, of: impl FnOnce(&mut M) -> &mut Vec<Webhook>) -> Bytes {
    let Ok(mut asked) = M::decode(request.clone()) else {
        return request;
    };
    let webhooks = of(&mut asked);
    if webhooks.is_empty() {
        return request;
    }
    webhooks.push(Webhook::default());
    asked.encode_to_vec().into()
}

fuzz_target!(|bytes: &[u8]| {
    harness::run(CreateSessionRequest::default(), |harness| async move {
        for (caller, method, request) in frames(bytes).filter_map(read).take(MAX_CALLS) {
            let answer = harness.call(caller, method, confined(method, request)).await;
            calls::check(answer);
        }
        harness.check_alive().await;
    });
});
