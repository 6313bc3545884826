//! The conductor: it closes the session and records the session's state before and after the close.

use std::{rc::Rc, time::Duration};

use tokio::time::sleep;
use troupe_proto::supervisor::v1::{
    CloseSessionRequest, ConditionKind, GetSessionRequest, ListActiveAgentsRequest, Session, StatusKind, Thread,
};
use troupe_tests::tree::{has, kind};

use crate::{
    caller::Caller,
    shared::{CLIENTS, CONDUCTOR, Picture, SharedState},
};

/// Interval between two checks without calls in between.
const PAUSE: Duration = Duration::from_millis(50);

/// Waits until the faults have ended, all clients have finished and all threads have settled, and then closes the
/// session.
pub async fn run(seed: u64, shared: Rc<SharedState>) -> turmoil::Result {
    let mut conductor = Conductor(Caller::with_session(CONDUCTOR, seed, Rc::clone(&shared)).await);
    while !shared.calm.get() || shared.done.get() < CLIENTS.len() {
        sleep(PAUSE).await;
    }
    let quiet = conductor
        .picture_where(|picture| picture.threads.iter().all(is_settled))
        .await;
    shared.pictures.borrow_mut().push(quiet);
    conductor.close().await;
    let closed = conductor.picture_where(|picture| picture.session.closed).await;
    shared.end.set(Some(closed.session.sequence));
    shared.pictures.borrow_mut().push(closed);
    Ok(())
}

/// Returns whether a thread has no pending effects. The client executes the root, so the root counts as settled unless
/// it is closing.
fn is_settled(thread: &Thread) -> bool {
    let is_root = thread.parent_thread_id.is_empty();
    let is_at_work = match kind(thread) {
        StatusKind::Queued | StatusKind::AwaitingApproval | StatusKind::PendingInit | StatusKind::Running => !is_root,
        StatusKind::Completed | StatusKind::Errored | StatusKind::Interrupted | StatusKind::Shutdown => false,
        StatusKind::Unspecified => panic!("a thread without a status: {thread:?}"),
    };
    !is_at_work && !has(thread, ConditionKind::Closing)
}

struct Conductor(Caller);

impl Conductor {
    /// Returns the first consistent picture for which `is_wanted` returns true. Repeats the reads until no event is
    /// recorded between them.
    async fn picture_where(&mut self, is_wanted: impl Fn(&Picture) -> bool) -> Picture {
        loop {
            let session = self.session().await;
            let threads = self.threads().await;
            let picture = Picture { session, threads };
            if is_wanted(&picture) && self.session().await == picture.session {
                return picture;
            }
            sleep(PAUSE).await;
        }
    }

    async fn session(&mut self) -> Session {
        let request = GetSessionRequest {
            session_id: self.0.session.session_id.clone(),
        };
        let answer = self
            .0
            .insist(&request, |mut client, request| async move {
                client.get_session(request).await
            })
            .await;
        answer.unwrap().session.unwrap()
    }

    /// Returns all threads. A simulation has fewer than a page.
    async fn threads(&mut self) -> Vec<Thread> {
        let request = ListActiveAgentsRequest {
            session_id: self.0.session.session_id.clone(),
            include_closed: true,
            include_self: true,
            ..ListActiveAgentsRequest::default()
        };
        let answer = self
            .0
            .insist(&request, |mut client, request| async move {
                client.list_active_agents(request).await
            })
            .await;
        let page = answer.unwrap();
        assert_eq!(page.next_page_token, "", "one page does not contain all threads");
        page.threads
    }

    async fn close(&mut self) {
        let request = CloseSessionRequest {
            request_id: String::from("the end"),
            session_id: self.0.session.session_id.clone(),
            ..CloseSessionRequest::default()
        };
        let answer = self
            .0
            .insist(&request, |mut client, request| async move {
                client.close_session(request).await
            })
            .await;
        answer.unwrap();
    }
}
