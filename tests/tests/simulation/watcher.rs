//! The watcher: it follows the session from its beginning to its end, and resumes at its position each time the stream
//! breaks.

use std::{rc::Rc, time::Duration};

use tokio::time::{sleep, timeout};
use troupe_proto::supervisor::v1::{WatchThreadsRequest, watch_threads_response::Message};

use crate::{
    caller::{ANSWER_WITHIN, Caller},
    shared::{SharedState, WATCHER},
};

/// Maximum silence of a stream: longer than the interval of the supervisor's bookmarks.
const SILENCE: Duration = Duration::from_millis(900);

/// Watches until the end of the session.
pub async fn run(seed: u64, shared: Rc<SharedState>) -> turmoil::Result {
    let mut caller = Caller::with_session(WATCHER, seed, Rc::clone(&shared)).await;
    let mut position = 0;
    while shared.end.get().is_none_or(|end| position < end) {
        watch(&mut caller, &mut position).await;
        let pause = caller.rng.millis(10..=100);
        sleep(pause).await;
    }
    Ok(())
}

/// Reads one stream until it ends, breaks, or has reached the end of the session.
async fn watch(caller: &mut Caller, position: &mut u64) {
    let request = WatchThreadsRequest {
        session_id: caller.session.session_id.clone(),
        after_sequence: Some(*position),
        ..WatchThreadsRequest::default()
    };
    let Ok(Ok(answer)) = timeout(ANSWER_WITHIN, caller.any_client().watch_threads(request)).await else {
        return;
    };
    let mut stream = answer.into_inner();
    while caller.shared.end.get() != Some(*position) {
        let Ok(Ok(Some(response))) = timeout(SILENCE, stream.message()).await else {
            return;
        };
        match response.message.unwrap() {
            Message::Event(event) => {
                *position = response.sequence;
                caller.shared.seen.borrow_mut().push(event);
            }
            // The stream has passed this sequence. If an earlier event was not sent, it never will be.
            Message::Bookmark(_) => *position = response.sequence,
            Message::Telemetry(_) => {}
            other @ (Message::Snapshot(_) | Message::Reset(_) | Message::Output(_)) => {
                panic!("a watch that resumed at a position received {other:?}")
            }
        }
    }
}
