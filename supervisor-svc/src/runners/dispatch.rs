//! Performs the pending effects of a session's threads: a subscriber of the commit feed that acts after each append,
//! after a restart, and when runners connect or disconnect.
//!
//! The effects are a function of the state ([`effect::pending_effect`]), so a repetition is harmless and a crash loses
//! none.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use supervisor_log::codec::parts::usage_from_pb;
use svc_kit::lock::lock;
use tokio::time::Instant;

use super::{
    hub::{AttemptState, StopReason},
    orchestrate::request_auto_turns,
    output::OutputBoard,
    services::Services,
    silence::SilenceCheck,
    steer::{SteerJob, Steering},
    turn::{DispatchEnd, DispatchJob},
};
use crate::{
    domain::{
        command::Command,
        effect::{self, PendingEffect},
        event::{ConditionKind, Event, SessionEvent, ThreadEvent},
        ids::{Generation, InputNumber, RunnerId, SessionId, ThreadId, Turn},
        rules::cascade,
        settings::ClosePolicy,
        state::{
            session::Session,
            thread::{LatestTurn, Thread},
        },
    },
    engine::feed::{Active, Change, Commands, Subscriber, Subscription, Waker},
};

/// The delay before a failed dispatch is repeated.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Dispatches the threads of all sessions to runners.
pub struct Dispatcher {
    services: Arc<Services>,
    output: OutputBoard,
}

impl Dispatcher {
    /// Creates a dispatcher with these parts.
    #[must_use]
    pub fn new(services: Services, output: OutputBoard) -> Self {
        Self {
            services: Arc::new(services),
            output,
        }
    }
}

impl Subscriber for Dispatcher {
    fn subscribe(&self, session: &Active<'_>, commands: &mut Commands) -> Option<Box<dyn Subscription>> {
        let mut dispatch = Dispatch {
            services: Arc::clone(&self.services),
            output: self.output.clone(),
            waker: Waker::of(session.handle),
            dispatching: HashSet::new(),
            steering: HashMap::new(),
            failed: None,
            silence: SilenceCheck::default(),
            ended: Arc::default(),
            inherited: Inherited::of(session.session, &self.services),
        };
        dispatch.recall_runners(session.session);
        dispatch.resume(session, commands);
        dispatch.silence.schedule(session.session);
        Some(Box::new(dispatch))
    }

    fn passivated(&self, session: SessionId) {
        self.services.telemetry.forget_session(session);
        self.output.tidy(session);
    }

    fn deleted(&self, session: SessionId) {
        self.services.telemetry.forget_session(session);
        self.output.forget_session(session);
    }
}

/// The dispatch of one session's threads.
struct Dispatch {
    services: Arc<Services>,
    output: OutputBoard,
    waker: Waker,
    /// Threads with a dispatch in flight or waiting for a retry.
    dispatching: HashSet<ThreadId>,
    /// Delivery progress of steering input, by thread.
    steering: HashMap<ThreadId, Steering>,
    failed: Option<FailedDispatches>,
    silence: SilenceCheck,
    /// The results of ended tasks. Bounded by the threads: each has at most one dispatch and one delivery.
    ended: Arc<Mutex<Vec<TaskEnd>>>,
    /// The attempts that another supervisor dispatched, while they are being taken over.
    inherited: Option<Inherited>,
}

/// Attempts that runners held when this supervisor took the session over. A runner names such attempts in its
/// next hello.
struct Inherited {
    taken_over: Instant,
    attempts: HashMap<ThreadId, Generation>,
    /// The time at which a runner may be asked to attach again.
    recall_at: Option<Instant>,
}

impl Inherited {
    /// Returns the attempts of a session that was just activated, if another supervisor may have owned it before.
    fn of(session: &Session, services: &Services) -> Option<Self> {
        let has_holder = |thread: &&Arc<Thread>| thread.status.kind().is_open() && thread.holder().is_some();
        let held = session.in_spawn_order().filter(has_holder);
        let attempts: HashMap<_, _> = held.map(|thread| (thread.id, thread.generation)).collect();
        (services.store.is_shared() && !attempts.is_empty()).then(|| Self {
            taken_over: Instant::now(),
            attempts,
            recall_at: None,
        })
    }

    /// Returns the time of an attempt's takeover; `None` if this supervisor dispatched it.
    fn since(&self, thread: ThreadId, generation: Generation) -> Option<Instant> {
        (self.attempts.get(&thread) == Some(&generation)).then_some(self.taken_over)
    }
}

/// Threads whose dispatch failed.
struct FailedDispatches {
    threads: Vec<ThreadId>,
    retry_at: Instant,
}

/// The result of a task.
enum TaskEnd {
    Dispatch(ThreadId, DispatchEnd),
    Steer(ThreadId, Steering),
}

impl Subscription for Dispatch {
    fn committed(&mut self, change: &Change<'_>, commands: &mut Commands) {
        self.act_on(change, commands);
        request_auto_turns(change.after.session, commands);
    }

    fn reconcile(&mut self, session: &Active<'_>, commands: &mut Commands) {
        let now = Instant::now();
        if let Some(failed) = self.failed.take_if(|failed| failed.retry_at <= now) {
            for thread in failed.threads {
                self.dispatching.remove(&thread);
            }
        }
        self.recall_runners(session.session);
        self.resume(session, commands);
        self.silence.check(session.session, &self.services.hub, commands);
    }

    fn woken(&mut self, session: &Active<'_>, commands: &mut Commands) {
        let all_ended = std::mem::take(&mut *lock(&self.ended));
        for ended in all_ended {
            match ended {
                TaskEnd::Dispatch(thread, DispatchEnd::Done) => {
                    self.dispatching.remove(&thread);
                    self.perform(session, thread, commands);
                }
                TaskEnd::Dispatch(thread, DispatchEnd::Undelivered) => {
                    self.dispatching.remove(&thread);
                    self.check_holder(session, thread, commands);
                }
                TaskEnd::Dispatch(thread, DispatchEnd::Failed) => {
                    // Until the retry, the thread counts as dispatching. Otherwise the slot that the failed dispatch
                    // released would start the next one at once.
                    let failed = self.failed.get_or_insert_with(|| FailedDispatches {
                        threads: Vec::new(),
                        retry_at: Instant::now() + RETRY_DELAY,
                    });
                    failed.threads.push(thread);
                }
                TaskEnd::Steer(thread, reached) => {
                    // Sends the input that arrived in the meantime.
                    if let Some(Steering::InFlight { repeat: true }) = self.steering.insert(thread, reached) {
                        self.steering.remove(&thread);
                    }
                    self.perform(session, thread, commands);
                }
            }
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        let retry = self.failed.as_ref().map(|failed| failed.retry_at);
        retry
            .into_iter()
            .chain(self.silence.at())
            .chain(self.check_inherited_at())
            .min()
    }

    fn is_busy(&self) -> bool {
        !self.dispatching.is_empty()
    }
}

impl Dispatch {
    /// Asks the runners of inherited attempts to attach again.
    fn recall_runners(&mut self, session: &Session) {
        let Some(inherited) = &mut self.inherited else { return };
        let hub = &self.services.hub;
        inherited.recall_at = None;
        inherited.attempts.retain(|id, generation| {
            let thread = session.thread(*id).filter(|thread| thread.generation == *generation);
            let Some(runner) = thread.and_then(|thread| thread.holder()) else {
                return false;
            };
            let state = hub.attempt_state(runner, *id, *generation, Some(inherited.taken_over));
            if state == AttemptState::Held {
                return false;
            }
            if let Some(at) = hub.recall(runner, inherited.taken_over) {
                inherited.recall_at = inherited.recall_at.into_iter().chain([at]).min();
            }
            true
        });
        if inherited.attempts.is_empty() {
            self.inherited = None;
        }
    }

    /// Returns when to check the inherited attempts next: at the next recall, and when half and all of the lease that
    /// began with the takeover is over.
    fn check_inherited_at(&self) -> Option<Instant> {
        let inherited = self.inherited.as_ref()?;
        let lease = self.services.hub.lease();
        let ends = [lease / 2, lease].map(|part| inherited.taken_over + part);
        let now = Instant::now();
        ends.into_iter()
            .filter(|end| *end > now)
            .chain(inherited.recall_at)
            .min()
    }

    /// Returns the relation of a runner to the present attempt of a thread.
    fn attempt_state(&self, runner: &RunnerId, id: ThreadId, generation: Generation) -> AttemptState {
        let taken_over = self
            .inherited
            .as_ref()
            .and_then(|inherited| inherited.since(id, generation));
        self.services.hub.attempt_state(runner, id, generation, taken_over)
    }

    fn act_on(&mut self, change: &Change<'_>, commands: &mut Commands) {
        let after = &change.after;
        for recorded in change.events {
            let (id, event) = match &recorded.event {
                Event::Thread(id, event) => (*id, event),
                Event::Session(SessionEvent::Updated(_)) => {
                    // The update may have ended a pause.
                    self.dispatch_waiting(after, commands);
                    continue;
                }
                Event::Session(SessionEvent::Opened(_) | SessionEvent::Closed) => continue,
            };
            match event {
                ThreadEvent::CloseRequested(_) => {
                    for ready in cascade::ready_leaves(after.session, id) {
                        self.perform(after, ready, commands);
                    }
                }
                ThreadEvent::Closed { .. } => {
                    self.stop_closed(change.before, id);
                    self.services.telemetry.forget(after.session.id, id);
                    self.output.forget(after.session.id, id);
                    if let Some(parent) = cascade::next_ready(after.session, id) {
                        self.perform(after, parent, commands);
                    }
                }
                ThreadEvent::TurnStarted { .. } => {
                    self.silence.schedule(after.session);
                    self.perform(after, id, commands);
                }
                ThreadEvent::TurnEnded { .. } => {
                    self.set_idle(after.session, id);
                    self.perform(after, id, commands);
                }
                ThreadEvent::Spawned(_)
                | ThreadEvent::Admitted
                | ThreadEvent::Placed { .. }
                | ThreadEvent::TurnDispatched { .. }
                | ThreadEvent::InputQueued { steers: true, .. }
                | ThreadEvent::InterruptRequested { .. } => self.perform(after, id, commands),
                ThreadEvent::SpawnFailed { .. }
                | ThreadEvent::InputQueued { steers: false, .. }
                | ThreadEvent::InputDelivered { .. }
                | ThreadEvent::ResultReported { .. }
                | ThreadEvent::GroupCreated { .. }
                | ThreadEvent::GroupUpdated { .. }
                | ThreadEvent::GroupItemEnded { .. }
                | ThreadEvent::GroupEnding { .. }
                | ThreadEvent::GroupEnded { .. }
                | ThreadEvent::GroupRetried(_)
                | ThreadEvent::NoteSet(_)
                | ThreadEvent::ConditionChanged { .. }
                | ThreadEvent::UsageRecorded { .. }
                | ThreadEvent::BudgetUpdated(_)
                | ThreadEvent::ArtifactRecorded { .. }
                | ThreadEvent::ToolDenied { .. }
                | ThreadEvent::Resumed(_)
                | ThreadEvent::EdgeCreated(_)
                | ThreadEvent::EdgeDeleted(_)
                | ThreadEvent::HandoffSent(_)
                | ThreadEvent::MailAcknowledged(_)
                | ThreadEvent::ApprovalRequested { .. }
                | ThreadEvent::ApprovalResolved { .. } => {}
            }
        }
    }

    /// Performs all pending effects, computed from the state alone.
    fn resume(&mut self, session: &Active<'_>, commands: &mut Commands) {
        // New streams need all steering input again. A delivery in flight is repeated after it ends.
        self.steering.retain(|_, steering| match steering {
            Steering::InFlight { repeat } => {
                *repeat = true;
                true
            }
            Steering::Sent { .. } | Steering::Over { .. } => false,
        });
        let fenced: Vec<ThreadId> = session.session.fenced().map(|(id, _)| id).collect();
        for top in fenced {
            for ready in cascade::ready_leaves(session.session, top) {
                self.perform(session, ready, commands);
            }
        }
        let state = session.session;
        let active: Vec<ThreadId> = state.holding().iter().copied().chain(state.root_id()).collect();
        for id in active {
            self.check_holder(session, id, commands);
        }
        request_auto_turns(state, commands);
    }

    /// Dispatches the turns that wait for a runner.
    fn dispatch_waiting(&mut self, session: &Active<'_>, commands: &mut Commands) {
        let starting: Vec<ThreadId> = session.session.starting().collect();
        for id in starting {
            self.perform(session, id, commands);
        }
    }

    /// Checks the runner that holds a thread, then performs the thread's pending effects.
    fn check_holder(&mut self, session: &Active<'_>, id: ThreadId, commands: &mut Commands) {
        for command in self.commands_about_holder(session.session, id) {
            commands.push(command);
        }
        self.perform(session, id, commands);
    }

    /// Returns the commands that follow from the state of an active thread's runner: unreachable after half a lease,
    /// lost after a whole lease or if the runner came back without the attempt.
    fn commands_about_holder(&self, session: &Session, id: ThreadId) -> Vec<Command> {
        let held = session.thread(id);
        let Some((thread, runner)) = held.and_then(|thread| Some((thread, thread.holder()?))) else {
            return Vec::new();
        };
        // A turn that was not dispatched cannot be lost. Any runner with a free slot may take it.
        let has_turn = !thread.turn.awaits_dispatch();
        if !thread.status.kind().is_active() || !has_turn || self.dispatching.contains(&id) {
            return Vec::new();
        }
        let unreachable = |active, reason| Command::SetCondition {
            thread: id,
            generation: thread.generation,
            kind: ConditionKind::Unreachable,
            active,
            reason,
        };
        let is_unreachable = thread.conditions.contains_key(&ConditionKind::Unreachable);
        // A running turn is marked unreachable before it is lost, because that event reports the loss to people. A turn
        // that never started is dispatched again.
        let lost = |reason: String| -> Vec<Command> {
            let is_running = matches!(thread.turn, LatestTurn::Running { .. });
            let is_new = is_running && !is_unreachable && !session.is_closing(id);
            let mark = is_new.then(|| unreachable(true, reason.clone()));
            let lost = Command::LoseRunner {
                thread: id,
                generation: thread.generation,
                reason,
            };
            self.unrecorded_usage(session, thread)
                .into_iter()
                .chain(mark)
                .chain([lost])
                .collect()
        };
        match self.attempt_state(runner, id, thread.generation) {
            AttemptState::Held if is_unreachable => {
                vec![unreachable(false, format!("runner {runner} is connected again"))]
            }
            AttemptState::Unreachable if !is_unreachable => {
                let reason = format!("runner {runner} has been disconnected for half of its lease");
                vec![unreachable(true, reason)]
            }
            AttemptState::Held | AttemptState::Disconnected | AttemptState::Unreachable => Vec::new(),
            AttemptState::Absent => lost(format!("runner {runner} came back without the agent")),
            AttemptState::Lost => lost(format!("runner {runner} was lost: its lease ran out")),
        }
    }

    /// Returns the usage that telemetry reported since the last record. After the attempt ends, this usage is not
    /// available anywhere else.
    fn unrecorded_usage(&self, session: &Session, thread: &Thread) -> Option<Command> {
        let telemetry = self.services.telemetry.of(session.id, thread.id)?;
        if telemetry.generation != thread.generation.get() {
            return None;
        }
        let lifetime = usage_from_pb(telemetry.usage?).ok()?;
        Some(Command::RecordUsage {
            thread: thread.id,
            generation: thread.generation,
            usage: lifetime.since(thread.earlier_usage),
            price: self
                .services
                .prices
                .of_thread(session, thread, self.services.clock.now()),
        })
    }

    /// Marks a thread's program as idle after its turn, so that it can be stopped when another thread needs its slot.
    fn set_idle(&self, session: &Session, id: ThreadId) {
        if let Some(thread) = session.thread(id)
            && let Some(runner) = thread.holder()
        {
            self.services.hub.set_idle(runner, id, thread.generation);
        }
    }

    /// Stops the program of a closed thread. Its runner may have attached again in the meantime. The thread has no
    /// further effects, so this is the last message about the attempt. A runner that attaches later learns from its
    /// welcome that the attempt is over.
    fn stop_closed(&self, before: &Session, id: ThreadId) {
        if let Some(thread) = before.thread(id)
            && let Some(runner) = thread.holder()
        {
            self.services
                .hub
                .stop_ended(runner, id, thread.generation, StopReason::Closed);
        }
    }

    /// Performs the pending effects of one thread. Repetition is harmless: runners ignore duplicates.
    fn perform(&mut self, session: &Active<'_>, id: ThreadId, commands: &mut Commands) {
        match effect::pending_effect(session.session, id) {
            None | Some(PendingEffect::Start { .. }) => {}
            Some(PendingEffect::Turn { last_runner }) => self.dispatch(session, id, last_runner),
            Some(PendingEffect::Interrupt { runner, turn }) => self.interrupt(session.session, id, &runner, turn),
            Some(PendingEffect::Steer { runner, turn, up_to }) => self.steer(session.session, id, runner, turn, up_to),
            Some(PendingEffect::Stop {
                runner,
                generation,
                policy,
            }) => self.stop(session, id, (&runner, generation), policy, commands),
            Some(PendingEffect::Close) => commands.push(Command::FinishClose {
                thread: id,
                forced: false,
            }),
        }
    }

    fn dispatch(&mut self, session: &Active<'_>, id: ThreadId, last_runner: Option<RunnerId>) {
        if !self.dispatching.insert(id) {
            return;
        }
        let Some(job) = DispatchJob::begin(&self.services, session, id, last_runner) else {
            self.dispatching.remove(&id);
            return;
        };
        let (ended, waker) = (Arc::clone(&self.ended), self.waker.clone());
        tokio::spawn(async move {
            let end = job.run().await;
            lock(&ended).push(TaskEnd::Dispatch(id, end));
            waker.wake().await;
            // The job keeps the session in memory until this point.
            drop(job);
        });
    }

    fn interrupt(&self, session: &Session, id: ThreadId, runner: &RunnerId, turn: Turn) {
        if let Some(thread) = session.thread(id) {
            let reason = thread.interrupt.as_ref().map(|interrupt| interrupt.reason.clone());
            let hub = &self.services.hub;
            hub.interrupt(runner, id, thread.generation, turn, reason.unwrap_or_default());
        }
    }

    /// Sends steering input once per stream. When a runner attaches or disconnects, all input is checked again.
    fn steer(&mut self, session: &Session, id: ThreadId, runner: RunnerId, turn: Turn, up_to: InputNumber) {
        let after = match self.steering.get(&id) {
            // One delivery at a time keeps inputs in order.
            Some(Steering::InFlight { .. }) => return,
            Some(Steering::Over { turn: same }) if *same == turn => return,
            Some(Steering::Sent { turn: same, up_to }) if *same == turn => *up_to,
            Some(Steering::Sent { .. } | Steering::Over { .. }) | None => InputNumber::ZERO,
        };
        if after < up_to
            && let Some(thread) = session.thread(id)
        {
            let job = SteerJob {
                services: Arc::clone(&self.services),
                session: session.id,
                thread: Arc::clone(thread),
                runner,
                turn,
                after,
                up_to,
            };
            self.steering.insert(id, Steering::InFlight { repeat: false });
            let (ended, waker) = (Arc::clone(&self.ended), self.waker.clone());
            tokio::spawn(async move {
                let reached = job.run().await;
                lock(&ended).push(TaskEnd::Steer(id, reached));
                waker.wake().await;
            });
        }
    }

    /// Asks the runner to stop the program. If there is no program or the cascade's time is over, closes the thread
    /// without the runner's confirmation.
    fn stop(
        &self,
        session: &Active<'_>,
        id: ThreadId,
        (runner, generation): (&RunnerId, Generation),
        policy: ClosePolicy,
        commands: &mut Commands,
    ) {
        let now = session.handle.now();
        let deadline = session.session.fences_over(id).map(|fence| fence.deadline).min();
        let overdue = deadline.is_some_and(|deadline| deadline <= now);
        let hub = &self.services.hub;
        let forced = match self.attempt_state(runner, id, generation) {
            // The runner receives a stop after the close is recorded. This may be its first stop message, if the
            // thread's children took all of the time or the time was zero.
            AttemptState::Held if overdue => true,
            AttemptState::Held => {
                let left = deadline.map_or(Duration::ZERO, |deadline| deadline.since(now));
                hub.shut_down(runner, id, generation, policy, left);
                return;
            }
            AttemptState::Disconnected | AttemptState::Unreachable if !overdue => return,
            AttemptState::Disconnected | AttemptState::Unreachable | AttemptState::Lost => true,
            AttemptState::Absent => false,
        };
        commands.push(Command::FinishClose { thread: id, forced });
    }
}
