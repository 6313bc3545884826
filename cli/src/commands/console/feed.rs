//! The merged stream of a page: sessions, their threads and one transcript.
//!
//! At most one change of a transcript is buffered: each message is received only after the page has received the
//! previous one. A slow browser therefore slows down only its own streams, and the supervisor limits their buffers.

use std::{pin::Pin, time::Duration};

use futures::{Stream, stream};
use tokio::{sync::mpsc, time::sleep};
use tonic::{Code, Request, Response, Status};
use troupe_client::{
    Supervisor,
    follow::{Follow, ThreadWatch, Update, Watch},
};
use troupe_proto::{
    console::v1::{
        SessionThreads, UnfollowedSession, WatchRequest, WatchResponse, console_service_server::ConsoleService,
        watch_response::Update as Change,
    },
    supervisor::v1::{WatchSessionsRequest, WatchThreadsRequest, WatchThreadsResponse, WatchTranscriptRequest},
};

use crate::{
    error::{Error, Kind},
    follow::{AllSessions, OpenSession, SessionsUpdate},
    sanitize,
};

/// Interval of empty messages on a silent stream. Some proxies end a stream after a minute without data.
const ALIVE: Duration = Duration::from_secs(15);

/// The service of the page's stream.
#[derive(Clone)]
pub(super) struct Feeds {
    supervisor: Supervisor,
}

impl Feeds {
    /// Creates a service that follows the sessions of this supervisor.
    pub(super) const fn new(supervisor: Supervisor) -> Self {
        Self { supervisor }
    }
}

#[tonic::async_trait]
impl ConsoleService for Feeds {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<WatchResponse, Status>> + Send>>;

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let feed = Feed::new(&self.supervisor, request.into_inner());
        let messages = stream::unfold(Some(feed), |feed| async {
            let mut feed = feed?;
            match feed.next().await {
                Ok(change) => Some((Ok(WatchResponse { update: change }), Some(feed))),
                Err(error) => Some((Err(status(&error)), None)),
            }
        });
        Ok(Response::new(Box::pin(messages)))
    }
}

type Watched = Box<dyn Fn(&OpenSession) -> Option<ThreadWatch> + Send>;

/// The sessions that a page follows.
enum Sessions {
    /// All open sessions.
    All(Box<AllSessions<ThreadWatch, Watched>>),
    /// One session, which may be closed.
    One(Box<OneSession>),
}

/// One session: its threads, and its roll-up from the watch of all sessions.
struct OneSession {
    id: String,
    /// `None` after a permanent error.
    threads: Option<Follow<ThreadWatch>>,
    sessions: Follow<WatchSessionsRequest>,
}

/// The sessions and the transcript that a page follows.
struct Feed {
    sessions: Sessions,
    /// `None` without a transcript, and after its end.
    transcript: Option<mpsc::Receiver<Change>>,
}

impl Feed {
    fn new(supervisor: &Supervisor, request: WatchRequest) -> Self {
        let WatchRequest {
            session_id,
            thread_id,
            include_closed,
            transcript_tail,
        } = request;
        let watch = move |session_id: &str| {
            ThreadWatch::new(WatchThreadsRequest {
                session_id: session_id.to_owned(),
                include_closed,
                ..WatchThreadsRequest::default()
            })
        };
        let transcript = (!thread_id.is_empty()).then(|| WatchTranscriptRequest {
            session_id: session_id.clone(),
            thread_id,
            tail: transcript_tail,
            ..WatchTranscriptRequest::default()
        });
        let sessions = WatchSessionsRequest::default();
        let sessions = match session_id.is_empty() {
            true => {
                let watched: Watched = Box::new(move |session| Some(watch(&session.id)));
                Sessions::All(Box::new(AllSessions::new(supervisor.clone(), sessions, watched)))
            }
            false => Sessions::One(Box::new(OneSession {
                threads: Some(Follow::new(supervisor.clone(), watch(&session_id))),
                sessions: Follow::new(supervisor.clone(), sessions),
                id: session_id,
            })),
        };
        Self {
            sessions,
            transcript: transcript.map(|request| follow_transcript(Follow::new(supervisor.clone(), request))),
        }
    }

    /// Returns the next change, or `None` after [`ALIVE`] without a change. An error is permanent.
    async fn next(&mut self) -> Result<Option<Change>, Error> {
        tokio::select! {
            change = self.sessions.next() => change.map(Some),
            change = next_of_transcript(&mut self.transcript) => Ok(Some(change)),
            () = sleep(ALIVE) => Ok(None),
        }
    }
}

impl Sessions {
    /// Returns the next change. An error is permanent. Cancel safe.
    async fn next(&mut self) -> Result<Change, Error> {
        let update = match self {
            Self::All(all) => all.next().await?,
            Self::One(one) => one.next().await?,
        };
        Ok(match update {
            SessionsUpdate::Session(session) => Change::Session(*session),
            SessionsUpdate::Message(session_id, response) => Change::Threads(SessionThreads {
                session_id,
                response: Some(*response),
            }),
            SessionsUpdate::Opened(id) => Change::OpenedSessionId(id),
            SessionsUpdate::Interrupted(id) => Change::InterruptedSessionId(id),
            SessionsUpdate::Lost(why) => Change::Lost(why),
            SessionsUpdate::Deleted(id) => Change::DeletedSessionId(id),
            SessionsUpdate::Unfollowed(session_id, error) => Change::Unfollowed(UnfollowedSession {
                session_id,
                reason: error.message().to_owned(),
            }),
        })
    }
}

impl OneSession {
    async fn next(&mut self) -> Result<SessionsUpdate<WatchThreadsResponse>, Error> {
        loop {
            tokio::select! {
                update = next_of(&mut self.threads) => {
                    if update.is_err() {
                        self.threads = None;
                    }
                    return Ok(SessionsUpdate::of(self.id.clone(), update));
                }
                update = self.sessions.next() => match update? {
                    Update::Message(message) => {
                        let id = message.session.as_ref().map(|session| session.session_id.as_str());
                        if id == Some(self.id.as_str()) {
                            return Ok(SessionsUpdate::Session(message));
                        }
                    }
                    Update::Opened => {}
                    Update::Lost { cause, .. } => return Ok(SessionsUpdate::Lost(sanitize::line(cause.message()))),
                },
            }
        }
    }
}

/// Follows a transcript in a task, so that messages of sessions cannot interrupt the opening of the watch again and
/// again.
fn follow_transcript(follow: Follow<WatchTranscriptRequest>) -> mpsc::Receiver<Change> {
    let (changes, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        tokio::select! {
            () = forward_entries(follow, &changes) => {}
            // The page has closed the stream.
            () = changes.closed() => {}
        }
    });
    receiver
}

/// Sends the entries of a transcript until its end, a permanent error, or the end of the receiver.
async fn forward_entries(mut follow: Follow<WatchTranscriptRequest>, changes: &mpsc::Sender<Change>) {
    loop {
        let (change, is_last) = match follow.next().await {
            Ok(Update::Message(response)) => {
                let is_last = response.closed;
                (Change::Transcript(*response), is_last)
            }
            // The page is not notified of a lost connection, because the numbers of the entries identify them.
            Ok(Update::Opened | Update::Lost { .. }) => continue,
            Err(status) => (Change::TranscriptError(Error::from(status).message().to_owned()), true),
        };
        if changes.send(change).await.is_err() || is_last {
            return;
        }
    }
}

/// Returns the next change of a transcript. Waits forever without a transcript and after its end. Cancel safe.
async fn next_of_transcript(transcript: &mut Option<mpsc::Receiver<Change>>) -> Change {
    if let Some(changes) = transcript
        && let Some(change) = changes.recv().await
    {
        return change;
    }
    *transcript = None;
    std::future::pending().await
}

async fn next_of<W: Watch>(follow: &mut Option<Follow<W>>) -> Result<Update<W::Message>, Error> {
    match follow {
        Some(follow) => Ok(follow.next().await?),
        None => std::future::pending().await,
    }
}

/// Returns the status that ends a stream.
fn status(error: &Error) -> Status {
    let code = match error.kind() {
        Kind::Refused => Code::PermissionDenied,
        Kind::NotFound => Code::NotFound,
        Kind::Timeout => Code::DeadlineExceeded,
        Kind::Unreachable => Code::Unavailable,
        Kind::Failure
        | Kind::Usage
        | Kind::AgentFailed
        | Kind::Interrupted
        | Kind::ReportedRefusal
        | Kind::Reported
        | Kind::ClosedPipe => Code::FailedPrecondition,
    };
    Status::new(code, error.message())
}
