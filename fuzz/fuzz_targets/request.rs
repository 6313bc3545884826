//! Calls of the supervisor. An input is several, each after its length: a line with the caller and the method, and the
//! bytes of the request after it. Every one is answered or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::{Message, bytes::Bytes};
use troupe_fuzz::{calls, frames::frames, stage};
use troupe_proto::supervisor::v1::{CreateSessionRequest, UpdateSessionRequest, Webhook};

/// How many calls of an input are made.
const MAX_CALLS: usize = 16;

/// Caller, method and request.
fn read(frame: &[u8]) -> Option<(&str, &str, Bytes)> {
    let end = frame.iter().position(|byte| *byte == b'\n')?;
    let (caller, method) = str::from_utf8(&frame[..end]).ok()?.split_once(' ')?;
    let is_name = method.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_name.then(|| (caller, method, Bytes::copy_from_slice(&frame[end + 1..])))
}

/// The request, so that nothing is sent out of this process: one that has webhooks gets one more without a URL, for which
/// it is refused after the others were looked at.
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
    stage::play(CreateSessionRequest::default(), |stage| async move {
        for (caller, method, request) in frames(bytes).filter_map(read).take(MAX_CALLS) {
            let answer = stage.call(caller, method, confined(method, request)).await;
            calls::check(answer);
        }
        stage.answers_still().await;
    });
});
