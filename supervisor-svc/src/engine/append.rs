//! Construction of one append. Each command is decided on a working copy that includes the earlier commands of the
//! batch.

use std::sync::Arc;

use supervisor_log::{codec::record, store};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::{
    error::Failure,
    handle::Request,
    message::{Done, Origin, Outcome, Remember},
    quota::ContentQuota,
    requests::{self, Requests},
    stored_contents::StoredContents,
};
use crate::{
    domain::{
        command::{Command, Report},
        decide::{self, tick},
        event::{Event, EventMetadata, Recorded, ThreadEvent},
        evolve,
        ids::{Digest, Epoch, Generation, ReportSequence, ThreadId},
        rejection::Rejection,
        rules::{graph, rate::EventRates},
        state::{session::Session, wait::Waits},
        time::UnixMillis,
    },
    transcripts,
};

type Reply = oneshot::Sender<Result<Done, Failure>>;

/// The due time of a session that is active or has webhooks. It is always in the past, even if the clock is wrong after
/// a restart.
pub(super) const DUE_AT_ONCE: UnixMillis = UnixMillis::new(0);

/// Returns when a session must be activated or deleted without a request. The progress of webhook deliveries is unknown
/// here, so a session with webhooks is always loaded when the service starts.
pub(super) fn due(session: &Session) -> Option<UnixMillis> {
    if session.is_at_work() || !session.settings.webhooks.is_empty() {
        return Some(DUE_AT_ONCE);
    }
    tick::next(session).into_iter().chain(session.expires()).min()
}

/// The number of records above which a command waits for the next append.
const FULL_RECORDS: usize = 256;

/// The number of requests above which a command waits for the next append. Rejected requests count.
const FULL_REQUESTS: usize = 1_024;

/// The bytes of content above which a command waits for the next append.
const FULL_CONTENT_BYTES: usize = 8 * 1024 * 1024;

/// A reply that is sent when the append is durable. Even a rejection may depend on earlier changes of the batch.
#[derive(Debug)]
pub(super) struct PendingReply {
    reply: Reply,
    result: Result<(Outcome, bool), Failure>,
}

/// A batch under construction.
#[derive(Debug)]
pub(super) struct AppendBuilder {
    /// The session's state before the batch.
    before: Arc<Session>,
    working: Session,
    batch: store::Batch,
    pending: Pending,
}

/// The work that remains when the append is durable or has failed.
#[derive(Debug)]
pub(super) struct Pending {
    pub now: UnixMillis,
    pub recorded: Vec<Recorded>,
    pub remembered: Vec<(Remember, Outcome)>,
    /// The runner reports that the append contains.
    pub reports: Vec<(ThreadId, Generation, ReportSequence)>,
    pub quota: ContentQuota,
    /// The contents that the append refers to. They become durable with the append.
    pub stored: Vec<Digest>,
    pub replies: Vec<PendingReply>,
}

impl AppendBuilder {
    pub fn new(session: &Arc<Session>, epoch: Epoch, now: UnixMillis, quota: ContentQuota) -> Self {
        Self {
            before: Arc::clone(session),
            working: Session::clone(session),
            batch: store::Batch {
                session: session.id,
                expected: session.sequence,
                epoch,
                records: Vec::new(),
                contents: Vec::new(),
                marks: Vec::new(),
                entries: Vec::new(),
                new_threads: Vec::new(),
                requests: Vec::new(),
                due: None,
            },
            pending: Pending {
                // The log's time never decreases, even if the clock does.
                now: now.max(session.updated),
                recorded: Vec::new(),
                remembered: Vec::new(),
                reports: Vec::new(),
                quota,
                stored: Vec::new(),
                replies: Vec::new(),
            },
        }
    }

    pub fn is_full(&self) -> bool {
        // Rejected requests record nothing, but they wait for the append too. Without this limit, a flood of them could
        // delay the append without bound.
        if self.pending.replies.len() >= FULL_REQUESTS {
            return true;
        }
        let content: usize = self.batch.contents.iter().map(|content| content.bytes.len()).sum();
        self.pending.recorded.len() >= FULL_RECORDS || content >= FULL_CONTENT_BYTES
    }

    /// Decides one request and applies its events to the working copy.
    pub fn take(&mut self, request: Request, requests: &Requests, stored: &StoredContents, rates: &mut EventRates) {
        let Request {
            command,
            origin,
            remember,
            contents,
            reply,
            earlier: _,
        } = request;
        let (known, contents): (Vec<_>, Vec<_>) = contents.into_iter().partition(|content| stored.has(content.digest));
        self.pending
            .stored
            .extend(known.into_iter().map(|content| content.digest));
        if let Command::Report {
            thread,
            generation,
            sequence,
            ..
        } = &command
        {
            self.pending.reports.push((*thread, *generation, *sequence));
        }
        let result = self.carry_out(&command, &origin, remember, contents, requests, rates);
        self.pending.replies.push(PendingReply { reply, result });
    }

    fn carry_out(
        &mut self,
        command: &Command,
        origin: &Origin,
        remember: Option<Remember>,
        contents: Vec<store::Content>,
        requests: &Requests,
        rates: &mut EventRates,
    ) -> Result<(Outcome, bool), Failure> {
        if let Some(remember) = &remember
            && let Some(outcome) = self.recall(remember, requests)?
        {
            return Ok((outcome, false));
        }
        let mut outcome = self.outcome_of(command);
        let events = decide::decide(&self.working, command, self.pending.now)?;
        if matches!(command, Command::Interrupt { .. }) {
            outcome.stopped = events.iter().filter_map(Event::thread).collect();
        }
        rates.charge(
            command,
            &origin.actor,
            events.len(),
            remember.is_some(),
            self.pending.now,
        )?;
        let recorded = !events.is_empty();
        // The contents of a command without effect are dropped, because no event refers to them.
        let keeps_contents = recorded && self.has_room(command, &contents)?;
        let metadata = EventMetadata {
            contents_left_out: recorded && !keeps_contents,
            ..origin.metadata()
        };
        self.record_all(events, &metadata)?;
        if keeps_contents {
            self.pending.quota.add(&contents);
            self.batch.contents.extend(contents);
        }
        if let Some(remember) = remember {
            self.pending.remembered.push((remember, outcome.clone()));
        }
        Ok((outcome, recorded))
    }

    /// Returns the waits of the working copy.
    pub fn waits(&mut self) -> &mut Waits {
        &mut self.working.waits
    }

    /// Records follow-up events without a command: new waits can free slots.
    pub fn follow_up(&mut self) {
        let events = decide::follow_ups(&self.working);
        if let Err(error) = self.record_all(events, &Origin::service().metadata()) {
            tracing::error!(session = %self.working.id, %error, "follow-up events not recorded");
        }
    }

    /// Records events and their follow-up events, or none of them.
    fn record_all(&mut self, mut events: Vec<Event>, metadata: &EventMetadata) -> Result<(), record::EncodeError> {
        let waits = self.working.waits.clone();
        let (recorded, new_threads) = (self.pending.recorded.len(), self.batch.new_threads.len());
        let (marks, entries) = (self.batch.marks.len(), self.batch.entries.len());
        let mut metadata = metadata.clone();
        while !events.is_empty() {
            for event in events {
                if let Err(error) = self.record(event, &metadata) {
                    // Usually the event that fails is the first one, and the working copy is unchanged.
                    if self.pending.recorded.len() > recorded {
                        self.pending.recorded.truncate(recorded);
                        self.batch.records.truncate(recorded);
                        self.batch.new_threads.truncate(new_threads);
                        self.batch.marks.truncate(marks);
                        self.batch.entries.truncate(entries);
                        self.fold_again(waits);
                    }
                    return Err(error);
                }
            }
            // The earlier state had no pending follow-up events, so the first of these events is the cause.
            metadata.cause = self.pending.recorded.get(recorded).map(|first| first.sequence);
            events = decide::follow_ups(&self.working);
        }
        Ok(())
    }

    /// Rebuilds the working copy from the earlier state and the recorded events. This is rare, so no backup copy is
    /// kept: a copy that shares nodes with the working copy would force each command to clone the nodes that it
    /// changes.
    fn fold_again(&mut self, waits: Waits) {
        self.working = Session::clone(&self.before);
        for recorded in &self.pending.recorded {
            evolve::evolve(&mut self.working, recorded);
        }
        self.working.waits = waits;
    }

    /// Returns whether to store a command's contents. Without room, a client's command is rejected. Contents of the
    /// supervisor and of runners are omitted, because their events, which name the digests, must be recorded. A result,
    /// the input of a repair turn and the table of a group are always stored: they are needed, and few more can follow,
    /// because further input is rejected.
    fn has_room(&mut self, command: &Command, contents: &[store::Content]) -> Result<bool, Failure> {
        let Err(rejection) = self.pending.quota.check(contents) else {
            return Ok(true);
        };
        let is_needed = matches!(
            command,
            Command::EndGroup { .. }
                | Command::Report {
                    report: Report::TurnEnded { result: Some(_), .. },
                    ..
                }
        );
        if is_needed {
            return Ok(true);
        }
        if !matches!(command, Command::Dispatch(_) | Command::Report { .. }) {
            return Err(rejection.into());
        }
        if self.pending.quota.record_omission() {
            tracing::warn!(session = %self.working.id, %rejection, "prompts and results are stored without their content");
        }
        Ok(false)
    }

    fn recall(&self, remember: &Remember, requests: &Requests) -> Result<Option<Outcome>, Rejection> {
        let mut remembered = self.pending.remembered.iter();
        match remembered.find(|(earlier, _)| earlier.key == remember.key) {
            Some((earlier, outcome)) => {
                remember.check(&earlier.hash)?;
                Ok(Some(outcome.clone()))
            }
            None => requests.recall(remember, self.pending.now),
        }
    }

    fn record(&mut self, event: Event, metadata: &EventMetadata) -> Result<(), record::EncodeError> {
        let mut metadata = metadata.clone();
        // An event without a calling request belongs to the trace of its thread's current request.
        if metadata.traceparent.is_none() {
            let thread = event.thread().and_then(|id| self.working.thread(id));
            metadata.traceparent = thread.and_then(|thread| thread.traceparent.clone());
        }
        let recorded = Recorded {
            sequence: self.working.sequence.next(),
            time: self.pending.now,
            metadata,
            event,
        };
        let bytes = record::encode_record(self.working.id, &recorded)?;
        evolve::evolve(&mut self.working, &recorded);
        if let Event::Thread(id, ThreadEvent::Spawned(_)) = &recorded.event {
            self.batch.new_threads.push(*id);
        }
        self.batch.marks.extend(mark(&recorded));
        self.batch.entries.extend(transcripts::notice(&recorded, &self.working));
        self.batch.records.push(store::NewRecord {
            sequence: recorded.sequence,
            bytes,
        });
        self.pending.recorded.push(recorded);
        Ok(())
    }

    /// Returns the parts of the reply that the state after the command does not contain.
    fn outcome_of(&self, command: &Command) -> Outcome {
        let about = |thread: ThreadId| Outcome {
            thread: Some(thread),
            status_before: self.working.thread(thread).map(|thread| thread.status.kind()),
            ..Outcome::default()
        };
        let made = |id: Uuid| Outcome {
            other: Some(id),
            ..Outcome::default()
        };
        match command {
            Command::Spawn(spawn) => Outcome {
                thread: Some(spawn.id),
                ..Outcome::default()
            },
            Command::SendInput { target, .. } => Outcome {
                input: self.working.thread(*target).map(|thread| thread.last_input.next()),
                ..about(*target)
            },
            Command::Close { target, .. }
            | Command::Interrupt { target, .. }
            | Command::Resume { target, .. }
            | Command::ReportResult { target, .. }
            | Command::AskParent { target, .. }
            | Command::SetNote { target, .. }
            | Command::UpdateBudget { target, .. }
            | Command::AcknowledgeMail { target, .. } => about(*target),
            Command::CreateGroup(new) => made(new.spec.id.as_uuid()),
            Command::UpdateGroup { group, .. }
            | Command::CancelGroup { group, .. }
            | Command::RetryGroup { group, .. } => made(group.as_uuid()),
            Command::CreateEdge { caller, edge, .. } => made(graph::answer_to(&self.working, caller, edge).as_uuid()),
            Command::SendHandoff { handoff, .. } => made(handoff.id.as_uuid()),
            Command::ResolveApproval { approval, .. } => made(approval.as_uuid()),
            Command::FailSpawn { .. }
            | Command::FailItem { .. }
            | Command::EndGroup { .. }
            | Command::Dispatch(_)
            | Command::Report { .. }
            | Command::LoseRunner { .. }
            | Command::RefuseStart { .. }
            | Command::RefuseTurn { .. }
            | Command::FinishClose { .. }
            | Command::UpdateSession(_)
            | Command::DeleteEdge { .. }
            | Command::RequestToolApproval { .. }
            | Command::DenyTool { .. }
            | Command::SetCondition { .. }
            | Command::RecordUsage { .. }
            | Command::AutoTurn { .. }
            | Command::Tick => Outcome::default(),
        }
    }

    /// Returns the batch and the state after it, or `None` if there is nothing to write. In that case all replies are
    /// sent from the present state.
    pub fn finish(mut self, present: &Arc<Session>) -> Option<(store::Batch, Arc<Session>, Pending)> {
        if self.pending.recorded.is_empty() && self.pending.remembered.is_empty() {
            send_replies(self.pending.replies, present);
            return None;
        }
        let contents = self.batch.contents.iter().map(|content| content.digest);
        self.pending.stored.extend(contents);
        let remembered = self.pending.remembered.iter();
        self.batch.requests = remembered
            .map(|(remember, outcome)| requests::record(remember, outcome, self.pending.now))
            .collect();
        self.batch.due = due(&self.working);
        Some((self.batch, Arc::new(self.working), self.pending))
    }
}

/// Returns the index entry by which readers find a record without reading the log; `None` if the record has none.
fn mark(recorded: &Recorded) -> Option<store::Mark> {
    let (kind, thread) = match &recorded.event {
        Event::Thread(id, ThreadEvent::TurnDispatched { .. }) => (store::MarkKind::Prompt, *id),
        Event::Thread(id, ThreadEvent::ArtifactRecorded { .. }) => (store::MarkKind::Artifact, *id),
        Event::Thread(_, ThreadEvent::HandoffSent(handoff)) => (store::MarkKind::Mail, handoff.to),
        Event::Session(_) | Event::Thread(..) => return None,
    };
    Some(store::Mark {
        kind,
        sequence: recorded.sequence,
        thread,
    })
}

impl Pending {
    /// Reports a failed append, or one with an unknown outcome, to all callers.
    pub fn fail(self, failure: &Failure) {
        // Rejections fail too, because they may depend on earlier changes of the batch.
        for PendingReply { reply, .. } in self.replies {
            let _ = reply.send(Err(failure.clone()));
        }
    }
}

/// Sends all replies, with this durable state.
pub(super) fn send_replies(replies: Vec<PendingReply>, session: &Arc<Session>) {
    for PendingReply { reply, result } in replies {
        let done = result.map(|(outcome, recorded)| Done {
            session: Arc::clone(session),
            outcome,
            recorded,
        });
        let _ = reply.send(done);
    }
}
