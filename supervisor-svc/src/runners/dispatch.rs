//! Pending effects: performs the result of [`effect::pending_effect`] after each append, after a restart, and when runners attach
//! or disconnect.

use std::{sync::Arc, time::Duration};

use supervisor_log::codec::parts::usage_from_pb;

use super::{Standing, WhyStopped, steer::{self, Steered}, turn};
use crate::{domain::{command::Command, effect::{self, PendingEffect}, event::{ConditionKind, Event, Recorded, SessionEvent, ThreadEvent}, ids::{Generation, InputNumber, RunnerId, ThreadId, Turn}, rules::cascade, settings::ClosePolicy, state::{session::Session, thread::{LatestTurn, Thread}}}, engine::actor::Actor};


impl Actor {
    /// Performs the effects of events appended to the state `before`.
    pub(super) fn act_on(&mut self, before: &Session, events: &[Recorded]) {
        for recorded in events {
            let (id, event) = match &recorded.event {
                Event::Thread(id, event) => (id, event),
                Event::Session(SessionEvent::Updated(change)) => {
                    if change.webhooks.is_some() {
                        self.deliver_notifications();
                    }
                    // The events may have ended a pause.
                    self.hand_out_waiting();
                    continue;
                }
                Event::Session(SessionEvent::Opened(_) | SessionEvent::Closed) => continue,
            };
            match event {
                ThreadEvent::CloseRequested(_) => {
                    for ready in cascade::ready_leaves(&self.session, *id) {
                        self.perform(ready);
                    }
                }
                ThreadEvent::Closed { .. } => {
                    self.stop_over(before, *id);
                    self.context.telemetry.forget(self.session.id, *id);
                    self.context.output.forget(self.session.id, *id);
                    if let Some(parent) = cascade::next_ready(&self.session, *id) {
                        self.perform(parent);
                    }
                }
                ThreadEvent::TurnStarted { .. } => {
                    self.listen_later();
                    self.perform(*id);
                }
                ThreadEvent::TurnEnded { .. } => {
                    self.rest(*id);
                    self.perform(*id);
                }
                ThreadEvent::Spawned(_)
                | ThreadEvent::Admitted
                | ThreadEvent::Placed { .. }
                | ThreadEvent::TurnDispatched { .. }
                | ThreadEvent::InputQueued { steers: true, .. }
                | ThreadEvent::InterruptRequested { .. } => self.perform(*id),
                ThreadEvent::SpawnFailed { .. }
                | ThreadEvent::InputQueued { steers: false, .. }
                | ThreadEvent::InputDelivered { .. }
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

    /// Starts webhook deliveries if there are pending notifications. Stops those of removed webhooks.
    pub(super) fn deliver_notifications(&mut self) {
        let (webhooks, store) = (&self.context.webhooks, &self.context.store);
        self.deliveries = webhooks.deliver(store, &self.handle, &self.session, self.deliveries.take());
    }

    /// Performs all pending effects, computed from the state alone: at load, when runners attach or disconnect, at a
    /// cascade's deadline, and after a failed append.
    pub(super) fn resume_work(&mut self) {
        // New streams need all steering input again. A delivery in flight is repeated after it ends.
        self.steered.retain(|_, steered| match steered {
            Steered::UnderWay { anew } => {
                *anew = true;
                true
            }
            Steered::Sent { .. } | Steered::Over { .. } => false,
        });
        let fenced: Vec<ThreadId> = self.session.fenced().map(|(id, _)| id).collect();
        for top in fenced {
            for ready in cascade::ready_leaves(&self.session, top) {
                self.perform(ready);
            }
        }
        self.reconcile_runners();
        self.keep_orchestrating();
    }

    /// Dispatches the turns that wait for a runner.
    fn hand_out_waiting(&mut self) {
        let starting: Vec<ThreadId> = self.session.starting().collect();
        for id in starting {
            self.perform(id);
        }
    }

    /// Dispatches waiting turns and checks the runners of the other threads.
    fn reconcile_runners(&mut self) {
        let active: Vec<ThreadId> = self
            .session
            .holding()
            .iter()
            .copied()
            .chain(self.session.root_id())
            .collect();
        for id in active {
            self.reconcile(id);
        }
    }

    /// Checks the runner of one thread and performs the thread's pending effects.
    pub(super) fn reconcile(&mut self, id: ThreadId) {
        let commands = self.standing_of(id);
        self.own.extend(commands);
        self.perform(id);
    }

    /// Returns the commands that follow from the state of an active thread's runner: unreachable after half a lease,
    /// lost after a whole lease or if the runner came back without the attempt.
    fn standing_of(&self, id: ThreadId) -> Vec<Command> {
        let held = self.session.thread(id);
        let Some((thread, runner)) = held.and_then(|thread| Some((thread, thread.holder()?))) else {
            return Vec::new();
        };
        // A turn that was not dispatched cannot be lost. Any runner with a free slot may take it.
        let has_turn = !thread.turn.is_undispatched();
        if !thread.status.kind().is_active() || !has_turn || self.dispatching.contains(&id) {
            return Vec::new();
        }
        let reachable = |active, reason| Command::SetCondition {
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
            let is_news = is_running && !is_unreachable && !self.session.is_closing(id);
            let told = is_news.then(|| reachable(true, reason.clone()));
            let lost = Command::LoseRunner {
                thread: id,
                generation: thread.generation,
                reason,
            };
            self.unrecorded_usage(thread)
                .into_iter()
                .chain(told)
                .chain([lost])
                .collect()
        };
        match self.context.runners.standing(runner, id, thread.generation) {
            Standing::Holds if is_unreachable => vec![reachable(false, format!("runner {runner} is back"))],
            Standing::Unreachable if !is_unreachable => {
                let reason = format!("runner {runner} has been away for half of its lease");
                vec![reachable(true, reason)]
            }
            Standing::Holds | Standing::Away | Standing::Unreachable => Vec::new(),
            Standing::Without => lost(format!("runner {runner} came back without the agent")),
            Standing::Lost => lost(format!("runner {runner} was lost: its lease ran out")),
        }
    }

    /// Returns the usage that telemetry reported since the last record. After the attempt ends, no other component has
    /// it.
    fn unrecorded_usage(&self, thread: &Thread) -> Option<Command> {
        let telemetry = self.context.telemetry.of(self.session.id, thread.id)?;
        if telemetry.generation != thread.generation.get() {
            return None;
        }
        let lifetime = usage_from_pb(telemetry.usage?).ok()?;
        Some(Command::RecordUsage {
            thread: thread.id,
            generation: thread.generation,
            usage: lifetime.since(thread.earlier_usage),
        })
    }

    /// Marks a thread's program as idle after its turn, so that the runner may stop it when it needs the slot.
    fn rest(&self, id: ThreadId) {
        if let Some(thread) = self.session.thread(id)
            && let Some(runner) = thread.holder()
        {
            self.context.runners.rest(runner, id, thread.generation);
        }
    }

    /// Stops the program of a closed thread. Its runner may have attached again in the meantime. The thread has no
    /// further effects, so this is the last message about the attempt. A runner that attaches later learns it from its
    /// welcome.
    fn stop_over(&self, before: &Session, id: ThreadId) {
        if let Some(thread) = before.thread(id)
            && let Some(runner) = thread.holder()
        {
            self.context
                .runners
                .stop_over(runner, id, thread.generation, WhyStopped::Closed);
        }
    }

    /// Performs the pending effects of one thread. Repetition is harmless: runners ignore duplicates.
    pub(super) fn perform(&mut self, id: ThreadId) {
        match effect::pending_effect(&self.session, id) {
            None | Some(PendingEffect::Start { .. }) => {}
            Some(PendingEffect::Turn { last_runner }) => self.dispatch(id, last_runner),
            Some(PendingEffect::Interrupt { runner, turn }) => self.interrupt(id, &runner, turn),
            Some(PendingEffect::Steer { runner, turn, up_to }) => self.steer(id, runner, turn, up_to),
            Some(PendingEffect::Stop {
                runner,
                generation,
                policy,
            }) => self.stop(id, &runner, generation, policy),
            Some(PendingEffect::Close) => self.own.push_back(Command::FinishClose {
                thread: id,
                forced: false,
            }),
        }
    }

    fn dispatch(&mut self, id: ThreadId, last_runner: Option<RunnerId>) {
        if !self.dispatching.insert(id) {
            return;
        }
        let Some(job) = dispatch::Job::begin(&self.context, &self.handle, &self.session, id, last_runner) else {
            self.dispatching.remove(&id);
            return;
        };
        tokio::spawn(job.run());
    }

    fn interrupt(&self, id: ThreadId, runner: &RunnerId, turn: Turn) {
        if let Some(thread) = self.session.thread(id) {
            let reason = thread.interrupt.as_ref().map(|interrupt| interrupt.reason.clone());
            let runners = &self.context.runners;
            runners.interrupt(runner, id, thread.generation, turn, reason.unwrap_or_default());
        }
    }

    /// Sends steering input once per stream. When a runner attaches or disconnects, all of it is checked again.
    fn steer(&mut self, id: ThreadId, runner: RunnerId, turn: Turn, up_to: InputNumber) {
        let after = match self.steered.get(&id) {
            // One delivery at a time keeps inputs in order.
            Some(Steered::UnderWay { .. }) => return,
            Some(Steered::Over { turn: same }) if *same == turn => return,
            Some(Steered::Sent { turn: same, up_to }) if *same == turn => *up_to,
            Some(Steered::Sent { .. } | Steered::Over { .. }) | None => InputNumber::ZERO,
        };
        if after < up_to
            && let Some(thread) = self.session.thread(id)
        {
            let delivery = steer::Delivery {
                context: Arc::clone(&self.context),
                control: self.handle.control.clone(),
                session: self.session.id,
                thread: Arc::clone(thread),
                runner,
                turn,
                after,
                up_to,
            };
            self.steered.insert(id, Steered::UnderWay { anew: false });
            tokio::spawn(delivery.run());
        }
    }

    /// Records the end of a delivery and sends the input that arrived in the meantime.
    pub(super) fn steered_up_to(&mut self, id: ThreadId, reached: Steered) {
        if let Some(Steered::UnderWay { anew: true }) = self.steered.insert(id, reached) {
            self.steered.remove(&id);
        }
        self.perform(id);
    }

    /// Asks the runner to stop the program. If there is no program or the cascade's time is over, closes the thread
    /// without a confirmation.
    fn stop(&mut self, id: ThreadId, runner: &RunnerId, generation: Generation, policy: ClosePolicy) {
        let now = self.handle.now();
        let deadline = self.session.fences_over(id).map(|fence| fence.deadline).min();
        let overdue = deadline.is_some_and(|deadline| deadline <= now);
        let runners = &self.context.runners;
        let forced = match runners.standing(runner, id, generation) {
            // The runner receives the stop after that is recorded. It may be the first stop message, if the thread's
            // children took all of the time or the time was zero.
            Standing::Holds if overdue => true,
            Standing::Holds => {
                let left = deadline.map_or(Duration::ZERO, |deadline| deadline.since(now));
                runners.shut_down(runner, id, generation, policy, left);
                return;
            }
            Standing::Away | Standing::Unreachable if !overdue => return,
            Standing::Away | Standing::Unreachable | Standing::Lost => true,
            Standing::Without => false,
        };
        self.own.push_back(Command::FinishClose { thread: id, forced });
    }
}
