//! Watches that report lost connections, and the watches of all sessions together.

use std::{collections::HashMap, time::Duration};

use tokio::{sync::mpsc, time::sleep};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Status;
use troupe_client::{
    Supervisor,
    follow::{Follow, Update, Watch},
};
use troupe_proto::supervisor::v1::{WatchSessionsRequest, WatchSessionsResponse};

use crate::{
    error::{Error, Kind, Result},
    ids, sanitize,
    ui::Ui,
};

/// Time in which the last messages of a session are still received after the session was reported as closed.
const AFTER_END: Duration = Duration::from_secs(5);

/// A session to follow.
pub(crate) struct OpenSession {
    pub(crate) id: String,
    /// Whether the session was opened after the start.
    pub(crate) is_new: bool,
}

/// Returns the next message of a watch. Reports lost connections. An error is permanent.
pub(crate) async fn next_message<W: Watch>(follow: &mut Follow<W>, ui: &Ui) -> Result<Box<W::Message>> {
    loop {
        match follow.next().await? {
            Update::Message(message) => return Ok(message),
            Update::Opened => {}
            Update::Lost { cause, .. } => ui.lost(cause.message(), ""),
        }
    }
}

/// An item of the watch of the session with this id, or the permanent error of the watch.
type Item<M> = (String, std::result::Result<Update<M>, Status>);

/// Maximum number of buffered messages of all sessions together.
const MAX_READY: usize = 64;

/// An item of [`AllSessions`].
pub(crate) enum SessionsUpdate<M> {
    /// A session, or its roll-up, has changed.
    Session(Box<WatchSessionsResponse>),
    /// A message of the session with this id.
    Message(String, Box<M>),
    /// The watch of the session with this id is open.
    Opened(String),
    /// The watch of the session with this id lost its connection. It resumes.
    Interrupted(String),
    /// The watch of the sessions lost its connection, for this reason. It resumes.
    Lost(String),
    /// The session with this id was deleted.
    Deleted(String),
    /// A session cannot be followed.
    Unfollowed(String, Error),
}

impl<M> SessionsUpdate<M> {
    /// Converts an item of the session's watch.
    pub(crate) fn of(session: String, item: Result<Update<M>>) -> Self {
        match item {
            Ok(Update::Message(message)) => Self::Message(session, message),
            Ok(Update::Opened) => Self::Opened(session),
            Ok(Update::Lost { .. }) => Self::Interrupted(session),
            Err(error) if error.kind() == Kind::NotFound => Self::Deleted(session),
            Err(error) => Self::Unfollowed(session, error),
        }
    }
}

/// Follows each open session with a task, including sessions that open later.
pub(crate) struct AllSessions<W: Watch, F> {
    supervisor: Supervisor,
    sessions: Follow<WatchSessionsRequest>,
    watch: F,
    /// Whether all sessions that were open at the start are known.
    is_synced: bool,
    /// The guards by session id. Dropping a guard ends the task that follows the session.
    tasks: HashMap<String, DropGuard>,
    sender: mpsc::Sender<Item<W::Message>>,
    items: mpsc::Receiver<Item<W::Message>>,
}

impl<W: Watch, F: Fn(&OpenSession) -> Option<W>> AllSessions<W, F> {
    /// Follows the sessions that the request selects, each with the watch that the function returns.
    pub(crate) fn new(supervisor: Supervisor, sessions: WatchSessionsRequest, watch: F) -> Self {
        let (sender, items) = mpsc::channel(MAX_READY);
        Self {
            sessions: Follow::new(supervisor.clone(), sessions),
            supervisor,
            watch,
            is_synced: false,
            tasks: HashMap::new(),
            sender,
            items,
        }
    }

    /// Returns the next message with the id of its session. Reports lost connections, and sessions that cannot be
    /// followed. An error is permanent.
    pub(crate) async fn next_message(&mut self, ui: &Ui) -> Result<(String, Box<W::Message>)> {
        loop {
            match self.next().await? {
                SessionsUpdate::Session(_)
                | SessionsUpdate::Opened(_)
                | SessionsUpdate::Interrupted(_)
                | SessionsUpdate::Deleted(_) => {}
                SessionsUpdate::Message(session, message) => return Ok((session, message)),
                SessionsUpdate::Lost(why) => ui.lost(&why, ""),
                SessionsUpdate::Unfollowed(session, error) => {
                    let id = ids::short(&session);
                    ui.note(format_args!("session {id} cannot be followed: {}", error.message()));
                }
            }
        }
    }

    /// Returns the next item. An error is permanent.
    ///
    /// Cancel safe, as [`Follow::next`].
    pub(crate) async fn next(&mut self) -> Result<SessionsUpdate<W::Message>> {
        loop {
            tokio::select! {
                Some((session, item)) = self.items.recv() => {
                    if item.is_err() {
                        self.tasks.remove(&session);
                    }
                    return Ok(SessionsUpdate::of(session, item.map_err(Error::from)));
                }
                update = self.sessions.next() => match update? {
                    Update::Message(message) => {
                        self.update_tasks(&message);
                        return Ok(SessionsUpdate::Session(message));
                    }
                    Update::Opened => {}
                    Update::Lost { cause, .. } => return Ok(SessionsUpdate::Lost(sanitize::line(cause.message()))),
                },
            }
        }
    }

    fn update_tasks(&mut self, message: &WatchSessionsResponse) {
        let is_new = self.is_synced;
        self.is_synced |= message.synced;
        let Some(session) = &message.session else {
            return;
        };
        let id = session.session_id.clone();
        if message.removed || session.closed {
            self.tasks.remove(&id);
        } else if !self.tasks.contains_key(&id)
            && let Some(watch) = (self.watch)(&OpenSession { id: id.clone(), is_new })
        {
            let ended = CancellationToken::new();
            let follow = Follow::new(self.supervisor.clone(), watch);
            tokio::spawn(forward(id.clone(), follow, self.sender.clone(), ended.clone()));
            self.tasks.insert(id, ended.drop_guard());
        }
    }
}

/// Sends the items of one session's watch until it fails permanently or the session has ended.
async fn forward<W: Watch>(
    id: String,
    mut follow: Follow<W>,
    items: mpsc::Sender<Item<W::Message>>,
    ended: CancellationToken,
) {
    let forward_all = async {
        loop {
            let item = follow.next().await;
            let is_last = item.is_err();
            if items.send((id.clone(), item)).await.is_err() || is_last {
                return;
            }
        }
    };
    let end = async {
        ended.cancelled().await;
        sleep(AFTER_END).await;
    };
    tokio::select! {
        () = forward_all => {}
        () = end => {}
        // `AllSessions` was dropped.
        () = items.closed() => {}
    }
}
