//! One append in the making: commands are decided on a working copy that the earlier ones of the batch have changed.

use std::sync::Arc;

use tokio::sync::oneshot;
use uuid::Uuid;

use super::{
    failure::Failure,
    message::{Done, Outcome, Remember, Request},
    remembered::{self, Requests},
    room::ContentRoom,
    stored::StoredContents,
};
use crate::{
    domain::{
        command::Command,
        decide::{self, tick},
        event::{Circumstances, Event, Recorded, ThreadEvent},
        evolve, graph,
        ids::{Digest, Epoch, Generation, ReportSequence, ThreadId},
        rate::EventRates,
        session::Session,
        time::UnixMillis,
        waiting::Waits,
    },
    store,
    wire::record,
};

type Reply = oneshot::Sender<Result<Done, Failure>>;

/// When a session that is at work or has webhooks is due: always, whatever the clock says after a restart.
pub(super) const DUE_AT_ONCE: UnixMillis = UnixMillis::new(0);

/// When a session must be awake, or removed, without being asked for. What its webhooks were sent is not known here, so one
/// that has any is always loaded at the service's start.
pub(super) fn due(session: &Session) -> Option<UnixMillis> {
    if session.is_at_work() || !session.settings.webhooks.is_empty() {
        return Some(DUE_AT_ONCE);
    }
    tick::next(session).into_iter().chain(session.expires()).min()
}

/// How many records an append has before the next command waits for the next append.
const FULL_RECORDS: usize = 256;

/// How many requests likewise, refused ones included.
const FULL_REQUESTS: usize = 1_024;

/// How many bytes of content likewise.
const FULL_CONTENT_BYTES: usize = 8 * 1024 * 1024;

/// Answers, given when the append is durable: even a refusal may rest on what the batch changed before it.
#[derive(Debug)]
struct Answer {
    reply: Reply,
    result: Result<(Outcome, bool), Failure>,
}

/// A batch in the making.
#[derive(Debug)]
pub(super) struct Draft {
    /// The session before the batch.
    before: Arc<Session>,
    working: Session,
    now: UnixMillis,
    recorded: Vec<Recorded>,
    encoded: Vec<store::NewRecord>,
    contents: Vec<store::Content>,
    /// Contents that commands refer to and that are durable already.
    stored: Vec<Digest>,
    room: ContentRoom,
    marks: Vec<store::Mark>,
    new_threads: Vec<ThreadId>,
    remembered: Vec<(Remember, Outcome)>,
    reports: Vec<(ThreadId, Generation, ReportSequence)>,
    answers: Vec<Answer>,
}

/// What to do when the append is durable, or has failed.
#[derive(Debug)]
pub(super) struct Pending {
    pub session: Arc<Session>,
    pub recorded: Vec<Recorded>,
    pub remembered: Vec<(Remember, Outcome)>,
    pub now: UnixMillis,
    /// The runners' reports that it rests on.
    pub reports: Vec<(ThreadId, Generation, ReportSequence)>,
    pub room: ContentRoom,
    /// The contents that it refers to, and that are durable with it.
    pub stored: Vec<Digest>,
    answers: Vec<Answer>,
}

impl Draft {
    pub fn new(session: &Arc<Session>, now: UnixMillis, room: ContentRoom) -> Self {
        Self {
            before: Arc::clone(session),
            working: Session::clone(session),
            // The log's time never goes back, whatever the clock does.
            now: now.max(session.updated),
            recorded: Vec::new(),
            encoded: Vec::new(),
            contents: Vec::new(),
            stored: Vec::new(),
            room,
            marks: Vec::new(),
            new_threads: Vec::new(),
            remembered: Vec::new(),
            reports: Vec::new(),
            answers: Vec::new(),
        }
    }

    pub fn is_full(&self) -> bool {
        // Refusals record nothing but wait for the append too: a flood of them must not put it off for ever.
        if self.answers.len() >= FULL_REQUESTS {
            return true;
        }
        let content: usize = self.contents.iter().map(|content| content.bytes.len()).sum();
        self.recorded.len() >= FULL_RECORDS || content >= FULL_CONTENT_BYTES
    }

    /// Decides one request and folds what it does into the working copy.
    pub fn take(&mut self, request: Request, requests: &Requests, stored: &StoredContents, rates: &mut EventRates) {
        let Request {
            command,
            origin,
            remember,
            contents,
            reply,
        } = request;
        let (known, contents): (Vec<_>, Vec<_>) = contents.into_iter().partition(|content| stored.has(content.digest));
        self.stored.extend(known.into_iter().map(|content| content.digest));
        if let Command::Report {
            thread,
            generation,
            sequence,
            ..
        } = &command
        {
            self.reports.push((*thread, *generation, *sequence));
        }
        let result = self.carry_out(&command, &origin, remember, contents, requests, rates);
        self.answers.push(Answer { reply, result });
    }

    fn carry_out(
        &mut self,
        command: &Command,
        origin: &super::Origin,
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
        let events = decide::decide(&self.working, command, self.now)?;
        if matches!(command, Command::Interrupt { .. }) {
            outcome.stopped = events.iter().filter_map(Event::thread).collect();
        }
        rates.charge(command, &origin.actor, events.len(), remember.is_some(), self.now)?;
        let recorded = !events.is_empty();
        // Nothing refers to the contents of a command that changed nothing.
        let keeps_contents = recorded && self.has_room(command, &contents)?;
        let circumstances = Circumstances {
            contents_left_out: recorded && !keeps_contents,
            ..origin.circumstances()
        };
        self.record_all(events, &circumstances)?;
        if keeps_contents {
            self.room.add(&contents);
            self.contents.extend(contents);
        }
        if let Some(remember) = remember {
            self.remembered.push((remember, outcome.clone()));
        }
        Ok((outcome, recorded))
    }

    /// Who waits for whom, as the working copy has it.
    pub fn waits(&mut self) -> &mut Waits {
        &mut self.working.waits
    }

    /// Records what follows by itself without a command: waits that began make slots free.
    pub fn follow_up(&mut self) {
        let events = decide::follow_ups(&self.working);
        if let Err(error) = self.record_all(events, &super::Origin::service().circumstances()) {
            tracing::error!(session = %self.working.id, %error, "what follows by itself cannot be recorded");
        }
    }

    /// Records events and what follows from them, or none of it.
    fn record_all(&mut self, mut events: Vec<Event>, circumstances: &Circumstances) -> Result<(), record::EncodeError> {
        let waits = self.working.waits.clone();
        let (recorded, new_threads, marks) = (self.recorded.len(), self.new_threads.len(), self.marks.len());
        let mut circumstances = circumstances.clone();
        while !events.is_empty() {
            for event in events {
                if let Err(error) = self.record(event, &circumstances) {
                    // Mostly it is the first event that cannot be recorded, and then nothing was folded.
                    if self.recorded.len() > recorded {
                        self.recorded.truncate(recorded);
                        self.encoded.truncate(recorded);
                        self.new_threads.truncate(new_threads);
                        self.marks.truncate(marks);
                        self.fold_anew(waits);
                    }
                    return Err(error);
                }
            }
            // Nothing followed from the state before, so what follows now follows from what these events began with.
            circumstances.cause = self.recorded.get(recorded).map(|first| first.sequence);
            events = decide::follow_ups(&self.working);
        }
        Ok(())
    }

    /// Makes the working copy what the recorded events make of the state before. So rare that no copy is kept for it: one
    /// that shares its nodes with the working copy would have every command copy what it changes.
    fn fold_anew(&mut self, waits: Waits) {
        self.working = Session::clone(&self.before);
        for recorded in &self.recorded {
            evolve::evolve(&mut self.working, recorded);
        }
        self.working.waits = waits;
    }

    /// Whether the session has room for the contents of a command. A client is refused; what the supervisor and runners bring
    /// is left out, since their events must be recorded, and tell its digests.
    fn has_room(&mut self, command: &Command, contents: &[store::Content]) -> Result<bool, Failure> {
        let Err(refusal) = self.room.check(contents) else {
            return Ok(true);
        };
        if !matches!(command, Command::Dispatch(_) | Command::Report { .. }) {
            return Err(refusal.into());
        }
        if self.room.leave_out() {
            tracing::warn!(session = %self.working.id, %refusal, "prompts and results are kept without their content");
        }
        Ok(false)
    }

    fn recall(&self, remember: &Remember, requests: &Requests) -> Result<Option<Outcome>, Failure> {
        for (earlier, outcome) in &self.remembered {
            if earlier.key == remember.key {
                if earlier.hash == remember.hash {
                    return Ok(Some(outcome.clone()));
                }
                return Err(crate::domain::refusal::Refusal::RequestIdReused(remember.key.request_id.clone()).into());
            }
        }
        Ok(requests.recall(remember, self.now)?)
    }

    fn record(&mut self, event: Event, circumstances: &Circumstances) -> Result<(), record::EncodeError> {
        let mut circumstances = circumstances.clone();
        // What no call causes follows from the one that its thread works on.
        if circumstances.traceparent.is_none() {
            let thread = event.thread().and_then(|id| self.working.thread(id));
            circumstances.traceparent = thread.and_then(|thread| thread.traceparent.clone());
        }
        let recorded = Recorded {
            sequence: self.working.sequence.next(),
            time: self.now,
            circumstances,
            event,
        };
        let bytes = record::encode_record(self.working.id, &recorded)?;
        evolve::evolve(&mut self.working, &recorded);
        if let Event::Thread(id, ThreadEvent::Spawned(_)) = &recorded.event {
            self.new_threads.push(*id);
        }
        self.marks.extend(mark(&recorded));
        self.encoded.push(store::NewRecord {
            sequence: recorded.sequence,
            bytes,
        });
        self.recorded.push(recorded);
        Ok(())
    }

    /// What the answer says that the state afterwards does not.
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
            | Command::SetNote { target, .. }
            | Command::UpdateBudget { target, .. }
            | Command::AcknowledgeMail { target, .. } => about(*target),
            Command::CreateEdge { caller, edge, .. } => made(graph::answer_to(&self.working, caller, edge).as_uuid()),
            Command::SendHandoff { handoff, .. } => made(handoff.id.as_uuid()),
            Command::ResolveApproval { approval, .. } => made(approval.as_uuid()),
            Command::FailSpawn { .. }
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

    /// The batch, unless there is nothing to write: then everybody is answered from the present state.
    pub fn finish(self, epoch: Epoch, present: &Arc<Session>) -> Option<(store::Batch, Pending)> {
        if self.recorded.is_empty() && self.remembered.is_empty() {
            answer(self.answers, present);
            return None;
        }
        let due = due(&self.working);
        let mut stored = self.stored;
        stored.extend(self.contents.iter().map(|content| content.digest));
        let requests = self
            .remembered
            .iter()
            .map(|(remember, outcome)| remembered::record(remember, outcome, self.now))
            .collect();
        let batch = store::Batch {
            session: self.working.id,
            expected: self.before.sequence,
            epoch,
            records: self.encoded,
            contents: self.contents,
            marks: self.marks,
            new_threads: self.new_threads,
            requests,
            due,
        };
        let pending = Pending {
            session: Arc::new(self.working),
            stored,
            recorded: self.recorded,
            remembered: self.remembered,
            now: self.now,
            reports: self.reports,
            room: self.room,
            answers: self.answers,
        };
        Some((batch, pending))
    }
}

/// What a record must be found as without reading the log.
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
    /// The append is durable: everybody is answered. Takes the answers, so it is done once.
    pub fn answer(&mut self) {
        answer(std::mem::take(&mut self.answers), &self.session);
    }

    /// The append did not happen, or nobody knows.
    pub fn fail(self, failure: &Failure) {
        // Refusals too: they may rest on what the batch would have changed before them.
        for Answer { reply, .. } in self.answers {
            let _ = reply.send(Err(failure.clone()));
        }
    }
}

fn answer(answers: Vec<Answer>, session: &Arc<Session>) {
    for Answer { reply, result } in answers {
        let done = result.map(|(outcome, recorded)| Done {
            session: Arc::clone(session),
            outcome,
            recorded,
        });
        let _ = reply.send(done);
    }
}
