//! The hub of runners: attached, disconnected within their lease, or lost. It knows which programs each runner has and
//! how many slots are free. The folded session decides which runner holds a thread.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use prost_types::Duration as ProtoDuration;
use supervisor_log::codec::WireEnum as _;
use svc_kit::lock::lock;
use tokio::{sync::watch, time::Instant};
use troupe_proto::{
    fault::Fault,
    supervisor::v1::{self as pb, attach_response::Message},
};

use super::{
    placement::{Need, Offer, check_enforceable},
    runner::{Attempt, IdleAction, Link, Outbox, Runner},
};
use crate::domain::{
    ids::{Generation, RunnerId, SessionId, ThreadId, Turn},
    settings::{ClosePolicy, Sandbox},
};

/// How long a silent runner keeps its attempts.
pub const LEASE: Duration = Duration::from_secs(30);

/// How long a program may take to stop before its runner kills it.
pub const STOP_GRACE: Duration = Duration::from_secs(5);

/// The minimum age of a stream before its runner is asked to attach again because threads have moved. Several threads
/// that move at the same time then need only one new stream.
const RECALL_AFTER: Duration = Duration::from_secs(1);

/// The maximum number of messages queued for a runner. A runner that falls further behind is disconnected and must
/// attach again.
pub(crate) const OUTBOX: usize = 1_024;

/// The maximum number of lost runners that are remembered, most recently lost first. Forgetting a runner is safe: the
/// attempts of an unknown runner are lost too, and a forgotten runner may attach again like any other.
const MAX_LOST: usize = 64;

/// The relation of a runner to an attempt at a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptState {
    /// The runner is attached and holds the attempt.
    Held,
    /// The runner does not hold the attempt, or did not hold it when the runner disconnected.
    Absent,
    /// The runner is disconnected within its lease.
    Disconnected,
    /// The runner is disconnected and half of its lease is over.
    Unreachable,
    /// The runner's lease has expired.
    Lost,
}

#[derive(Debug, Default)]
struct Roster {
    runners: BTreeMap<RunnerId, Runner>,
    streams: u64,
}

/// The reason for stopping a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The thread is closed.
    Closed,
    /// The thread stays open, and another thread needs the program's slot.
    SlotNeeded,
    /// The thread stays open, and a newer attempt replaced this one.
    Superseded,
}

/// A program that must stop to free its slot for another thread.
struct IdleStop {
    runner: RunnerId,
    thread: ThreadId,
    generation: Generation,
}

/// The registry of runners. Cheap to clone; all clones share the same roster.
#[derive(Clone, Debug)]
pub struct RunnerHub {
    // Held for look-ups and small changes only, never across an await.
    roster: Arc<Mutex<Roster>>,
    changes: Arc<watch::Sender<u64>>,
    started: Instant,
    lease: Duration,
}

impl RunnerHub {
    /// Creates an empty roster with the given lease. Leases of runners that were attached before a restart begin again.
    #[must_use]
    pub fn new(lease: Duration) -> Self {
        let hub = Self {
            roster: Arc::default(),
            changes: Arc::new(watch::channel(0).0),
            started: Instant::now(),
            lease,
        };
        hub.announce_lease();
        hub
    }

    /// Returns how long a silent runner keeps its attempts.
    #[must_use]
    pub const fn lease(&self) -> Duration {
        self.lease
    }

    /// Returns the number of attached runners.
    #[must_use]
    pub fn attached(&self) -> usize {
        let roster = lock(&self.roster);
        roster.runners.values().filter(|runner| runner.is_attached()).count()
    }

    /// Returns the number of disconnected runners within their lease. They keep their attempts until the lease expires.
    #[must_use]
    pub fn disconnected(&self) -> usize {
        let is_away = |runner: &&Runner| match runner.link {
            Link::Attached { .. } => false,
            Link::Disconnected { since } => since.elapsed() < self.lease,
        };
        lock(&self.roster).runners.values().filter(is_away).count()
    }

    /// Returns the runners that are attached, or were less than a lease ago, by id.
    #[must_use]
    pub fn list(&self) -> Vec<pb::Runner> {
        let roster = lock(&self.roster);
        let known = roster.runners.iter();
        known.filter_map(|(id, runner)| runner.shown(id, self.lease)).collect()
    }

    /// Returns a receiver that changes when a runner's [`AttemptState`] may have changed or a slot may have become
    /// free.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Returns the reason why no attached runner can take a thread now; `None` if one can.
    #[must_use]
    pub fn why_unplaceable(&self, need: &Need<'_>) -> Option<&'static str> {
        let roster = lock(&self.roster);
        let mut fitting = roster.runners.values().filter(|runner| runner.suits(need)).peekable();
        if fitting.peek().is_none() {
            Some("no attached runner fits; start one with `troupe run`")
        } else if fitting.any(|runner| runner.has_free_slot(need.session)) {
            None
        } else {
            Some("every attached runner that fits is full; start another one with `troupe run`")
        }
    }

    /// Checks that one of the attached runners, with or without a free slot, could enforce a thread's role. Succeeds if
    /// no suitable runner is attached, because the thread may wait for one.
    ///
    /// # Errors
    /// POLICY_NOT_ENFORCEABLE with the missing capabilities.
    pub fn check_enforceable(&self, need: &Need<'_>) -> Result<(), Fault> {
        let roster = lock(&self.roster);
        let attached = roster.runners.values().filter(|runner| runner.is_attached());
        check_enforceable(attached.map(|runner| &runner.offer), need)
    }

    /// Chooses a runner for an attempt and assigns the attempt to it: among the suitable runners, the one with the
    /// fewest programs. Runners for single use that have the session come first. If all of them are full, the program
    /// that has been idle longest receives a stop. [`Self::changes`] announces the free slot when that program ends.
    #[must_use]
    pub fn place(&self, need: &Need<'_>, thread: ThreadId, generation: Generation) -> Option<RunnerId> {
        let mut roster = lock(&self.roster);
        let least = roster
            .runners
            .iter_mut()
            .filter(|(_, runner)| runner.suits(need) && runner.has_free_slot(need.session))
            .min_by(|(a_id, a), (b_id, b)| a.priority().cmp(&b.priority()).then_with(|| a_id.cmp(b_id)));
        if let Some((id, runner)) = least {
            runner.take(thread, Attempt::new(need.session, generation, false));
            return Some(id.clone());
        }
        let idle_stop = roster.free_slot_for(need, thread);
        drop(roster);
        if let Some(leaving) = idle_stop {
            self.stop_idle(&leaving.runner, leaving.thread, leaving.generation);
        }
        None
    }

    /// Marks the program of an attempt as busy with its thread's next turn. Returns false if the runner no longer holds
    /// the attempt or is stopping its program.
    #[must_use]
    pub fn resume(&self, id: &RunnerId, thread: ThreadId, generation: Generation) -> bool {
        self.change(id, |runner| runner.is_attached() && runner.resume(thread, generation))
            .unwrap_or_default()
    }

    /// Marks the program of an attempt as idle after a turn. The program waits for the next turn until its slot is
    /// needed or the runner drains.
    pub fn set_idle(&self, id: &RunnerId, thread: ThreadId, generation: Generation) {
        match self.change(id, |runner| runner.set_idle(thread, generation)) {
            None | Some(IdleAction::Keep) => {}
            Some(IdleAction::Announce) => self.announce(),
            Some(IdleAction::Stop) => self.stop_idle(id, thread, generation),
        }
    }

    /// Releases an attempt.
    pub fn release(&self, id: &RunnerId, thread: ThreadId, generation: Generation) {
        if self.change(id, |runner| runner.release(thread, generation)) == Some(true) {
            self.announce();
        }
    }

    /// Records activity of an attempt. Returns its session; `None` if the runner does not hold the attempt.
    pub fn record_activity(&self, id: &RunnerId, thread: ThreadId, generation: Generation) -> Option<SessionId> {
        self.change(id, |runner| runner.record_activity(thread, generation))?
    }

    /// Returns the time of an attempt's last activity; `None` if its runner is disconnected or does not hold it.
    #[must_use]
    pub fn last_activity(&self, id: &RunnerId, thread: ThreadId, generation: Generation) -> Option<Instant> {
        lock(&self.roster).runners.get(id)?.last_activity(thread, generation)
    }

    /// Returns the relation of a runner to an attempt. `taken_over` is the time at which this supervisor took the
    /// attempt over from another one: the runner may hold it, although only the other supervisor knows that.
    #[must_use]
    pub fn attempt_state(
        &self,
        id: &RunnerId,
        thread: ThreadId,
        generation: Generation,
        taken_over: Option<Instant>,
    ) -> AttemptState {
        let roster = lock(&self.roster);
        let away_since = match (roster.runners.get(id), taken_over) {
            (Some(runner), Some(at)) if runner.held(thread, generation).is_none() && runner.attached_at < at => at,
            // This applies to a disconnected runner too: such a runner receives no attempt that it did not hold before.
            (Some(runner), _) if runner.held(thread, generation).is_none() => return AttemptState::Absent,
            (Some(runner), _) => match runner.link {
                Link::Attached { .. } => return AttemptState::Held,
                Link::Disconnected { since } => since,
            },
            (None, taken_over) => taken_over.unwrap_or(self.started),
        };
        let away = away_since.elapsed();
        if away >= self.lease {
            AttemptState::Lost
        } else if away >= self.lease / 2 {
            AttemptState::Unreachable
        } else {
            AttemptState::Disconnected
        }
    }

    /// Asks an attached runner to attach again, if its stream is older than `since`: its next hello names the attempts
    /// that have moved to this supervisor. If it is too early to ask, returns the time at which to ask.
    pub fn recall(&self, id: &RunnerId, since: Instant) -> Option<Instant> {
        let mut roster = lock(&self.roster);
        let runner = roster.runners.get_mut(id)?;
        if !runner.is_attached() || runner.is_recalled || runner.attached_at >= since {
            return None;
        }
        let earliest = runner.attached_at + RECALL_AFTER;
        if earliest > Instant::now() {
            return Some(earliest);
        }
        runner.is_recalled = true;
        drop(roster);
        tracing::info!(runner = %id, "asking a runner to attach again, because its threads have moved here");
        let reason = String::from("a thread has moved to another supervisor");
        self.send(id, Message::GoAway(pb::RunnerGoAway { reason }));
        None
    }

    /// Stops the program of a runner that has been idle longest.
    pub(super) fn free_slot(&self, id: &RunnerId) {
        let stopped = self.change(id, |runner| {
            let (thread, _) = runner.longest_idle()?;
            Some((thread, runner.stop(thread, None)?))
        });
        if let Some(Some((thread, generation))) = stopped {
            self.stop_idle(id, thread, generation);
        }
    }

    /// Returns whether the operating system enforces the sandbox for a thread that the runner executes as `kind`. If
    /// `kind` is `None`, it must enforce the sandbox for all of the runner's kinds.
    #[must_use]
    pub fn confines(&self, id: &RunnerId, kind: Option<&str>, sandbox: Sandbox) -> bool {
        let roster = lock(&self.roster);
        let Some(runner) = roster.runners.get(id) else {
            return false;
        };
        let mut kinds = runner
            .offer
            .kinds
            .iter()
            .filter(|offered| kind.is_none_or(|kind| offered.kind == kind))
            .peekable();
        kinds.peek().is_some()
            && kinds.all(|offered| match sandbox {
                Sandbox::ReadOnly => offered.enforces_read_only,
                Sandbox::WorkspaceWrite => offered.enforces_workspace,
                Sandbox::FullAccess => true,
            })
    }

    /// Sends the start of an attempt at a thread. Returns false if the message was not sent.
    #[must_use]
    pub fn start(&self, id: &RunnerId, thread: ThreadId, generation: Generation, start: pb::StartThread) -> bool {
        tracing::debug!(runner = %id, session = start.session_id, %thread, "start");
        self.send_about(id, thread, generation, Message::StartThread(start))
    }

    /// Sends the next turn of a thread that the runner holds. Returns false if the message was not sent.
    #[must_use]
    pub fn deliver_turn(&self, id: &RunnerId, thread: ThreadId, generation: Generation, turn: pb::Turn) -> bool {
        self.send_about(
            id,
            thread,
            generation,
            Message::DeliverInput(pb::DeliverInput {
                command_id: format!("turn:{thread}:{generation}:{}", turn.turn),
                thread_id: thread.to_string(),
                generation: generation.get(),
                delivery: Some(pb::deliver_input::Delivery::Turn(turn)),
            }),
        )
    }

    /// Sends more input for a running turn. Returns false if the message was not sent.
    pub fn deliver_input(
        &self,
        id: &RunnerId,
        thread: ThreadId,
        generation: Generation,
        input: pb::RunningInput,
    ) -> bool {
        self.send_about(
            id,
            thread,
            generation,
            Message::DeliverInput(pb::DeliverInput {
                command_id: format!("input:{thread}:{generation}:{}", input.number),
                thread_id: thread.to_string(),
                generation: generation.get(),
                delivery: Some(pb::deliver_input::Delivery::Running(input)),
            }),
        )
    }

    /// Interrupts a running turn.
    pub fn interrupt(&self, id: &RunnerId, thread: ThreadId, generation: Generation, turn: Turn, reason: String) {
        self.send(
            id,
            Message::Interrupt(pb::InterruptTurn {
                command_id: format!("interrupt:{thread}:{generation}:{turn}"),
                thread_id: thread.to_string(),
                generation: generation.get(),
                turn: turn.get(),
                reason,
            }),
        );
    }

    /// Stops the program of a closed thread. `left` is the remaining time of the close cascade.
    pub fn shut_down(
        &self,
        id: &RunnerId,
        thread: ThreadId,
        generation: Generation,
        policy: ClosePolicy,
        left: Duration,
    ) {
        let grace = match policy {
            ClosePolicy::Kill => Duration::ZERO,
            ClosePolicy::Terminate => STOP_GRACE,
            ClosePolicy::FinishTurn => left,
        };
        self.send(id, stop_message(thread, generation, policy, grace, StopReason::Closed));
    }

    /// Stops the program of an ended attempt immediately. Sends nothing to a runner that does not hold the attempt.
    pub fn stop_ended(&self, id: &RunnerId, thread: ThreadId, generation: Generation, why: StopReason) {
        let message = stop_message(thread, generation, ClosePolicy::Kill, Duration::ZERO, why);
        // If the message is not sent, the runner's next welcome stops the attempt.
        let _ = self.send_about(id, thread, generation, message);
    }

    /// Stops an idle program whose thread stays open.
    fn stop_idle(&self, id: &RunnerId, thread: ThreadId, generation: Generation) {
        tracing::debug!(runner = %id, %thread, %generation, "idle program stopped");
        let why = StopReason::SlotNeeded;
        let message = stop_message(thread, generation, ClosePolicy::Terminate, STOP_GRACE, why);
        self.send(id, message);
    }

    /// Registers an attached runner, whose hello arrived at `hello_at`, and ends an earlier stream of the same runner.
    /// Returns the new stream's number.
    pub(super) fn attach(
        &self,
        id: &RunnerId,
        offer: Offer,
        outbox: Outbox,
        hello_at: Instant,
        held: BTreeMap<ThreadId, Attempt>,
    ) -> u64 {
        let mut roster = lock(&self.roster);
        roster.streams += 1;
        let stream = roster.streams;
        let link = Link::Attached { outbox, stream };
        let runner = Runner::new(offer, link, hello_at, held, roster.runners.get(id));
        // Replacing the entry drops the old outbox, which ends the old stream.
        roster.runners.insert(id.clone(), runner);
        drop(roster);
        self.announce();
        stream
    }

    /// Marks a runner as disconnected, unless a newer stream replaced this one. The lease runs from `since`: the end
    /// of the stream, or the last message if the runner was silent.
    pub(super) fn detach(&self, id: &RunnerId, stream: u64, since: Instant) {
        let mut roster = lock(&self.roster);
        if let Some(runner) = roster.runners.get_mut(id)
            && runner.is_on(stream)
        {
            runner.link = Link::Disconnected { since };
            drop(roster);
            self.announce();
            self.announce_lease();
        }
    }

    /// Returns whether this is the runner's current stream: it was neither replaced nor disconnected.
    pub(super) fn is_present(&self, id: &RunnerId, stream: u64) -> bool {
        lock(&self.roster)
            .runners
            .get(id)
            .is_some_and(|runner| runner.is_on(stream))
    }

    /// Returns the session of an attempt that a runner holds.
    pub(super) fn session_of(&self, id: &RunnerId, thread: ThreadId, generation: Generation) -> Option<SessionId> {
        Some(lock(&self.roster).runners.get(id)?.held(thread, generation)?.session)
    }

    /// Marks a runner as draining: it takes no more threads, and its idle programs are stopped.
    pub(super) fn drain(&self, id: &RunnerId) {
        for (thread, generation) in self.change(id, Runner::drain).unwrap_or_default() {
            self.stop_idle(id, thread, generation);
        }
    }

    /// Removes an attempt that the runner rejected. `full` means that the runner has no free slot.
    pub(super) fn start_rejected(&self, id: &RunnerId, thread: ThreadId, generation: Generation, full: bool) {
        if self.change(id, |runner| runner.reject(thread, generation, full)) == Some(true) {
            self.announce();
        }
    }

    /// Makes a full runner eligible again at its heartbeat: work outside this supervisor may have filled it.
    pub(super) fn heartbeat(&self, id: &RunnerId) {
        if self.change(id, Runner::clear_full) == Some(true) {
            self.announce();
        }
    }

    /// Sends a message about an attempt, as [`Self::send`], if the runner holds that attempt. A runner that came back
    /// without the attempt must not receive the message: no later message would stop the work that it starts.
    fn send_about(&self, id: &RunnerId, thread: ThreadId, generation: Generation, message: Message) -> bool {
        let roster = lock(&self.roster);
        let runner = roster.runners.get(id);
        let has_it = runner.is_some_and(|runner| runner.held(thread, generation).is_some());
        has_it && self.send_in(roster, id, message)
    }

    /// Returns whether the message was queued. The effect of a message that was not queued stays pending.
    pub(super) fn send(&self, id: &RunnerId, message: Message) -> bool {
        self.send_in(lock(&self.roster), id, message)
    }

    fn send_in(&self, mut roster: MutexGuard<'_, Roster>, id: &RunnerId, message: Message) -> bool {
        let Some(runner) = roster.runners.get_mut(id) else {
            return false;
        };
        let Link::Attached { outbox, .. } = &runner.link else {
            return false;
        };
        let response = pb::AttachResponse { message: Some(message) };
        let is_sent = outbox.try_send(Ok(response)).is_ok();
        if !is_sent {
            // The stream has ended or its outbox is full. The effect stays pending; the runner receives it when it
            // attaches again.
            runner.link = Link::Disconnected { since: Instant::now() };
            drop(roster);
            self.announce();
            self.announce_lease();
        }
        is_sent
    }

    /// Changes a runner, if it is known. The roster is unlocked when this returns.
    fn change<R>(&self, id: &RunnerId, change: impl FnOnce(&mut Runner) -> R) -> Option<R> {
        lock(&self.roster).runners.get_mut(id).map(change)
    }

    fn announce(&self) {
        self.changes.send_modify(|version| *version += 1);
    }

    /// Announces a change at half of a lease that begins now, and at its end, when the runner is lost.
    fn announce_lease(&self) {
        let (roster, changes) = (Arc::downgrade(&self.roster), Arc::downgrade(&self.changes));
        let (lease, half) = (self.lease, self.lease / 2);
        tokio::spawn(async move {
            for part in [half, lease - half] {
                tokio::time::sleep(part).await;
                let Some(changes) = changes.upgrade() else { return };
                changes.send_modify(|version| *version += 1);
            }
            if let Some(roster) = roster.upgrade() {
                lock(&roster).forget_lost(lease);
            }
        });
    }
}

fn stop_message(
    thread: ThreadId,
    generation: Generation,
    policy: ClosePolicy,
    grace: Duration,
    why: StopReason,
) -> Message {
    Message::Shutdown(pb::ShutdownThread {
        command_id: format!("shutdown:{thread}:{generation}"),
        thread_id: thread.to_string(),
        generation: generation.get(),
        close_policy: policy.number(),
        grace: ProtoDuration::try_from(grace).ok(),
        reason: match why {
            StopReason::Closed => "closed".to_owned(),
            StopReason::SlotNeeded => "its slot is needed by another thread".to_owned(),
            StopReason::Superseded => "another attempt has replaced it".to_owned(),
        },
        thread_goes_on: match why {
            StopReason::Closed => false,
            StopReason::SlotNeeded | StopReason::Superseded => true,
        },
    })
}

impl Roster {
    /// Forgets runners whose lease expired, except for the most recent [`MAX_LOST`].
    fn forget_lost(&mut self, lease: Duration) {
        let mut lost: Vec<(Instant, RunnerId)> = Vec::new();
        for (id, runner) in &self.runners {
            match runner.link {
                Link::Disconnected { since } if since.elapsed() >= lease => lost.push((since, id.clone())),
                Link::Disconnected { .. } | Link::Attached { .. } => {}
            }
        }
        lost.sort_unstable();
        let too_many = lost.len().saturating_sub(MAX_LOST);
        for (_, id) in lost.drain(..too_many) {
            self.runners.remove(&id);
        }
    }

    /// Selects the program that has been idle longest on a suitable runner, and marks it as stopping. Selects at most
    /// one per waiting thread.
    fn free_slot_for(&mut self, need: &Need<'_>, thread: ThreadId) -> Option<IdleStop> {
        let mut longest: Option<(RunnerId, ThreadId, Instant)> = None;
        for (id, runner) in &mut self.runners {
            if !runner.suits(need) {
                continue;
            }
            if runner.is_freeing_slot_for(thread) {
                return None;
            }
            match runner.longest_idle() {
                Some((idle, since)) if longest.as_ref().is_none_or(|(.., least)| since < *least) => {
                    longest = Some((id.clone(), idle, since));
                }
                Some(_) => {}
                None => runner.request_slot(),
            }
        }
        let (runner, idle, _) = longest?;
        let generation = self.runners.get_mut(&runner)?.stop(idle, Some(thread))?;
        Some(IdleStop {
            runner,
            thread: idle,
            generation,
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        sync::mpsc,
        time::{advance, timeout},
    };
    use uuid::Uuid;

    use super::*;

    fn any_offer() -> Offer {
        Offer {
            kinds: Vec::new(),
            labels: BTreeMap::new(),
            capacity: 0,
            session: None,
            is_single_use: false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn lease_starts_at_last_activity() {
        let hub = RunnerHub::new(LEASE);
        let (outbox, _responses) = mpsc::channel(1);
        let (id, generation) = (RunnerId::new("r"), Generation::new(1));
        let thread = ThreadId::from_uuid(Uuid::from_u128(1));
        let held = Attempt::new(SessionId::from_uuid(Uuid::from_u128(2)), generation, false);
        let stream = hub.attach(
            &id,
            any_offer(),
            outbox,
            Instant::now(),
            BTreeMap::from([(thread, held)]),
        );
        let last_activity = Instant::now();
        advance(LEASE).await;
        assert_eq!(hub.attempt_state(&id, thread, generation, None), AttemptState::Held);
        hub.detach(&id, stream, last_activity);
        assert_eq!(hub.attempt_state(&id, thread, generation, None), AttemptState::Lost);
        assert_eq!(hub.disconnected(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn runner_of_taken_over_thread_is_recalled() {
        let hub = RunnerHub::new(LEASE);
        let (outbox, mut responses) = mpsc::channel(4);
        let (id, generation) = (RunnerId::new("r"), Generation::new(1));
        let thread = ThreadId::from_uuid(Uuid::from_u128(1));
        let hello_at = Instant::now();
        advance(Duration::from_millis(10)).await;
        // The takeover happens while the attempts of the hello are reviewed.
        let taken_over = Instant::now();
        advance(Duration::from_millis(10)).await;
        hub.attach(&id, any_offer(), outbox.clone(), hello_at, BTreeMap::new());
        let state = || hub.attempt_state(&id, thread, generation, Some(taken_over));
        assert_eq!(state(), AttemptState::Disconnected);
        let at = hub.recall(&id, taken_over).expect("the stream is young");
        assert!(responses.try_recv().is_err());
        tokio::time::sleep_until(at).await;
        assert_eq!(hub.recall(&id, taken_over), None);
        assert_eq!(hub.recall(&id, taken_over), None, "once");
        let Some(Message::GoAway(_)) = responses.try_recv().unwrap().unwrap().message else {
            panic!("the runner must attach again");
        };
        assert!(responses.try_recv().is_err());
        advance(LEASE).await;
        assert_eq!(state(), AttemptState::Lost);
        hub.attach(&id, any_offer(), outbox, Instant::now(), BTreeMap::new());
        assert_eq!(state(), AttemptState::Absent, "its hello did not name the attempt");
    }

    #[tokio::test]
    async fn only_holder_of_ended_attempt_receives_stop() {
        let hub = RunnerHub::new(LEASE);
        let (id, generation) = (RunnerId::new("r"), Generation::new(1));
        let thread = ThreadId::from_uuid(Uuid::from_u128(1));
        let session = SessionId::from_uuid(Uuid::from_u128(2));
        let attach = |held: &[Generation]| {
            let (outbox, responses) = mpsc::channel(1);
            let held = held.iter().map(|held| (thread, Attempt::new(session, *held, false)));
            hub.attach(&id, any_offer(), outbox, Instant::now(), held.collect());
            responses
        };

        let without = [Vec::new(), vec![generation.next()]];
        for held in without {
            let mut responses = attach(&held);
            hub.stop_ended(&id, thread, generation, StopReason::Closed);
            assert!(responses.try_recv().is_err(), "{held:?}");
        }
        for (why, goes_on) in [(StopReason::Closed, false), (StopReason::Superseded, true)] {
            let mut responses = attach(&[generation]);
            hub.stop_ended(&id, thread, generation, why);
            let Some(Message::Shutdown(told)) = responses.try_recv().unwrap().unwrap().message else {
                panic!("a stop is sent");
            };
            assert_eq!(told.close_policy(), pb::ClosePolicy::Kill);
            assert_eq!((told.thread_id, told.generation), (thread.to_string(), 1));
            assert_eq!(told.thread_goes_on, goes_on, "{why:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn recently_lost_runners_are_remembered() {
        let hub = RunnerHub::new(LEASE);
        let (outbox, _responses) = mpsc::channel(1);
        let id = |number: usize| RunnerId::new(format!("runner {number}"));
        let attach = |number: usize| {
            hub.attach(
                &id(number),
                any_offer(),
                outbox.clone(),
                Instant::now(),
                BTreeMap::new(),
            )
        };
        let is_known = |number: usize| lock(&hub.roster).runners.contains_key(&id(number));

        // The first runner stays attached. The others are lost: one more than the maximum.
        attach(0);
        for number in 1..=MAX_LOST + 1 {
            let stream = attach(number);
            hub.detach(&id(number), stream, Instant::now());
            advance(Duration::from_millis(1)).await;
        }
        assert!(is_known(1), "its lease runs");
        let mut changes = hub.changes();
        let forgotten = timeout(LEASE * 2, async {
            while is_known(1) && changes.changed().await.is_ok() {}
        });
        forgotten.await.unwrap();
        assert!(!is_known(1));
        let rest = (0..=MAX_LOST + 1).filter(|number| is_known(*number));
        assert_eq!(
            rest.count(),
            MAX_LOST + 1,
            "the recently lost runners and the attached runner"
        );
        assert_eq!(hub.disconnected(), 0);
    }
}
