//! Transcripts of threads: listed in pages, followed, and written by clients.

use std::{sync::Arc, time::Duration};

use supervisor_log::{codec::WireEnum as _, store::TranscriptQuery};
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use troupe_proto::supervisor::v1 as pb;

use super::{call::Call, page::Page, parse, service::SupervisorService};
use crate::{
    convert::{
        Redaction,
        status::{RESUME, draining, refused},
    },
    domain::{
        event::ConditionKind,
        ids::{Generation, ThreadId},
        principal::Caller,
        rejection::Rejection,
        rules::{authority, start},
        state::session::Session,
        time::UnixMillis,
        transcript::{TranscriptKind, TranscriptKinds, TranscriptSource},
    },
    engine::{Failure, Handle},
    transcripts::{BATCH_ENTRIES, BATCH_TEXT_BYTES, shown, stored},
};

/// Maximum number of last entries that a request may select.
pub(crate) const MAX_TAIL: u32 = 100_000;
/// Maximum number of entries that a watcher reads at once. Long texts are not included, so a message has at most 4 MiB.
const WATCHED_ENTRIES: usize = 128;
/// Maximum number of buffered messages of a watcher.
const OUTBOX: usize = 4;

pub(super) async fn list_transcript(
    call: Call<'_>,
    mut request: pb::ListTranscriptRequest,
) -> Result<pb::ListTranscriptResponse, Status> {
    let page: Page<u64> = Page::of(&mut request, &call.scope)?;
    let (handle, thread) = call.authorized_thread(&request.session_id, &request.thread_id).await?;
    let reader = Reader::new(call.service, handle, thread, &request.kinds, call.redaction)?;
    let after = match page.after() {
        Some(after) => *after,
        None => reader.start(request.after_number, request.tail).await?,
    };
    let entries = reader.entries(after, page.size() + 1).await?;
    let entries = entries.into_iter().map(|entry| (entry.number, entry));
    let (entries, next_page_token) = page.cut(entries, |entry| entry, None);
    Ok(pb::ListTranscriptResponse {
        entries,
        next_page_token,
    })
}

pub(super) async fn watch_transcript(
    call: Call<'_>,
    request: pb::WatchTranscriptRequest,
) -> Result<ReceiverStream<Result<pb::WatchTranscriptResponse, Status>>, Status> {
    let (handle, thread) = call.authorized_thread(&request.session_id, &request.thread_id).await?;
    let reader = Reader::new(call.service, handle, thread, &request.kinds, call.redaction)?;
    let after = reader.start(request.after_number, request.tail).await?;
    let (outbox, messages) = mpsc::channel(OUTBOX + 1);
    let watch = Watch {
        lifetime: call.service.clock().jittered(call.service.config.watch.lifetime),
        reader,
        thread_caller: call.token.map(|_| call.caller),
    };
    tokio::spawn(watch.run(after, outbox));
    Ok(ReceiverStream::new(messages))
}

pub(super) async fn append_transcript(
    call: Call<'_>,
    request: pb::AppendTranscriptRequest,
) -> Result<pb::AppendTranscriptResponse, Status> {
    let (handle, target) = call.authorized_thread(&request.session_id, &request.thread_id).await?;
    let session = handle.state();
    let thread = authority::authorize(&session, &call.caller, call.method, target).map_err(refused)?;
    start::takes_part(&session, thread).map_err(refused)?;
    if !thread.spawned.client_owned {
        return Err(refused(Rejection::IllegalTransition {
            thread: target,
            status: thread.status.kind(),
            wanted: "take entries from a client: a runner writes its transcript",
        }));
    }
    check_entries(&request)?;
    let source = TranscriptSource {
        session: handle.id(),
        thread: target,
        generation: thread.generation,
        batch: request.batch,
    };
    let now = call.service.clock().now();
    let entries = stored(thread.generation, request.entries, session.settings.transcript, now);
    let last = call
        .service
        .transcripts
        .append_now(source, entries)
        .await
        .map_err(Failure::from)?;
    Ok(pb::AppendTranscriptResponse {
        last_number: last.unwrap_or_default(),
    })
}

fn check_entries(request: &pb::AppendTranscriptRequest) -> Result<(), Status> {
    let count = request.entries.len();
    if request.batch == 0 {
        return Err(parse::bad("batch", "batch is required: a number above 0"));
    }
    if count == 0 || count > BATCH_ENTRIES {
        let text = format!("entries has {count} entries; 1 to {BATCH_ENTRIES} are allowed");
        return Err(parse::bad("entries", text));
    }
    let bytes: usize = request.entries.iter().map(|entry| entry.text.len()).sum();
    if bytes > BATCH_TEXT_BYTES {
        let text = format!("entries has {bytes} bytes of text; at most {BATCH_TEXT_BYTES} are allowed");
        return Err(parse::bad("entries", text));
    }
    let unknown = |entry: &&pb::TranscriptEntry| TranscriptKind::from_number(entry.kind).is_err();
    match request.entries.iter().find(unknown) {
        Some(entry) => Err(no_kind("entries.kind", entry.kind)),
        None => Ok(()),
    }
}

fn no_kind(field: &'static str, kind: i32) -> Status {
    parse::bad(field, format!("{kind} is not a kind of transcript entries"))
}

/// Reads the transcript of one thread for one caller.
pub(super) struct Reader {
    service: SupervisorService,
    handle: Handle,
    thread: ThreadId,
    kinds: TranscriptKinds,
    redaction: Redaction,
}

impl Reader {
    pub(super) fn new(
        service: &SupervisorService,
        handle: Handle,
        thread: ThreadId,
        kinds: &[i32],
        redaction: Redaction,
    ) -> Result<Self, Status> {
        let kinds = if kinds.is_empty() {
            TranscriptKinds::ALL
        } else {
            let read = |kind: &i32| TranscriptKind::from_number(*kind).map_err(|_| no_kind("kinds", *kind));
            kinds.iter().map(read).collect::<Result<_, _>>()?
        };
        Ok(Self {
            service: service.clone(),
            handle,
            thread,
            kinds,
            redaction,
        })
    }

    fn query(&self, after: u64, limit: usize) -> TranscriptQuery {
        TranscriptQuery {
            session: self.handle.id(),
            thread: self.thread,
            after,
            kinds: self.kinds,
            limit,
        }
    }

    /// Returns the number after which reading starts.
    async fn start(&self, after: u64, tail: u32) -> Result<u64, Status> {
        match tail {
            0 => Ok(after),
            tail if tail > MAX_TAIL => Err(parse::bad("tail", format!("tail {tail} is more than {MAX_TAIL}"))),
            tail => {
                let store = self.service.directory.store();
                let count = usize::try_from(tail).unwrap_or(usize::MAX);
                let before = store.transcript_tail(self.query(after, 0), count).await;
                Ok(before.map_err(Failure::from)?)
            }
        }
    }

    /// Returns the entries after a number.
    pub(super) async fn entries(&self, after: u64, limit: usize) -> Result<Vec<pb::TranscriptEntry>, Failure> {
        let store = self.service.directory.store();
        let stored = store.transcript(self.query(after, limit)).await?;
        let shown = stored.into_iter().map(|entry| {
            let number = entry.number;
            shown(entry)
                .map(|entry| self.redaction.transcript_entry(entry))
                .map_err(|error| Failure::Corrupt(format!("entry {number} of the transcript: {error}")))
        });
        shown.collect()
    }
}

/// A watch of one transcript.
struct Watch {
    reader: Reader,
    lifetime: Duration,
    /// The caller, if it is a thread, whose token may become invalid.
    thread_caller: Option<Caller>,
}

/// The conditions of a thread, its attempt, and whether it has no turn; `None` if the thread does not exist.
type Noted = Option<(Vec<(ConditionKind, (UnixMillis, String))>, Generation, bool)>;

type Outbox = mpsc::Sender<Result<pb::WatchTranscriptResponse, Status>>;

impl Watch {
    async fn run(self, after: u64, outbox: Outbox) {
        // Every reason to end a watch also applies while the watch waits for its reader.
        let ended = tokio::select! {
            biased;
            () = self.reader.service.draining.cancelled() => Err(draining(RESUME)),
            () = outbox.closed() => Ok(()),
            () = sleep(self.lifetime) => Ok(()),
            ended = self.follow(after, &outbox) => ended,
        };
        if let Err(status) = ended {
            // A client that does not read misses the status.
            let _ = timeout(self.reader.service.config.watch.flush_timeout, outbox.send(Err(status))).await;
        }
    }

    /// Sends the entries until the thread is closed, or its session is passivated or moved.
    async fn follow(&self, mut after: u64, outbox: &Outbox) -> Result<(), Status> {
        let mut changes = self.reader.service.transcripts.changes(self.reader.thread);
        let mut states = self.reader.handle.states();
        let limits = &self.reader.service.config.watch;
        let mut idle = interval(limits.bookmark_every);
        idle.set_missed_tick_behavior(MissedTickBehavior::Delay);
        idle.reset();
        loop {
            // Marked before the entries are read, so that no later change is missed.
            changes.mark_unchanged();
            let (is_over, noted) = {
                let session = states.borrow_and_update();
                (self.is_over(&session), self.noted(&session))
            };
            self.check_caller()?;
            let entries = self.reader.entries(after, WATCHED_ENTRIES).await?;
            if let Some(last) = entries.last() {
                after = last.number;
                let message = pb::WatchTranscriptResponse {
                    entries,
                    number: after,
                    closed: false,
                };
                send(outbox, message).await?;
                idle.reset();
                continue;
            }
            let bookmark = pb::WatchTranscriptResponse {
                entries: Vec::new(),
                number: after,
                closed: is_over,
            };
            if is_over {
                return send(outbox, bookmark).await;
            }
            // An event may have added a notice to the transcript.
            let has_news = |session: &Arc<Session>| {
                self.is_over(session) || self.is_stale(session) || self.noted(session) != noted
            };
            // A source ends when the session is passivated or moved: the client watches again.
            let has_ended = tokio::select! {
                changed = changes.changed() => changed.is_err(),
                has_ended = async { states.wait_for(has_news).await.is_err() } => has_ended,
                _ = idle.tick() => {
                    send(outbox, bookmark).await?;
                    false
                }
            };
            if has_ended {
                return Ok(());
            }
        }
    }

    /// Returns the parts of the thread's state whose changes may be [notices](crate::transcripts::notice).
    fn noted(&self, session: &Session) -> Noted {
        let thread = session.thread(self.reader.thread)?;
        let conditions = thread.conditions.iter().map(|(kind, since)| (*kind, since.clone()));
        Some((conditions.collect(), thread.generation, thread.turn.awaits_dispatch()))
    }

    /// Returns whether the thread is closed.
    fn is_over(&self, session: &Session) -> bool {
        let thread = session.thread(self.reader.thread);
        thread.is_none_or(|thread| !thread.status.kind().is_open())
    }

    /// Returns whether the caller is a thread whose token is no longer valid.
    fn is_stale(&self, session: &Session) -> bool {
        let mut caller = self.thread_caller.iter();
        caller.any(|caller| authority::fresh(session, caller).is_err())
    }

    /// Fails if the caller is a thread whose token is no longer valid: a thread's stream must not outlive its token.
    fn check_caller(&self) -> Result<(), Status> {
        let session = self.reader.handle.state();
        match &self.thread_caller {
            Some(caller) => authority::fresh(&session, caller).map(drop).map_err(refused),
            None => Ok(()),
        }
    }
}

async fn send(outbox: &Outbox, message: pb::WatchTranscriptResponse) -> Result<(), Status> {
    let sent = outbox.send(Ok(message)).await;
    sent.map_err(|_| Status::cancelled("the client disconnected"))
}
