//! Folding of events into state. Folding is total and never fails. Live state and replay use the same code.
//!
//! An event in the log was legal when it was decided, so folding does not check it again. An event about an unknown
//! object changes nothing.

use std::sync::Arc;

use imbl::Vector;

use crate::{
    event::{ApprovalDecision, ApprovalKind, ConditionKind, Event, Recorded, SessionEvent, Spawned, ThreadEvent},
    group::GroupOutcome,
    ids::{ApprovalId, EdgeId, Generation, InputNumber, ReportSequence, Sequence, SessionId, ThreadId, Turn},
    rules::{budget, stall},
    settings::{StallRule, Usage},
    state::{
        approval::{Approval, MAX_DECIDED, Verdict},
        group::{Group, GroupStage},
        mailbox::{Body, Letter, Mailbox},
        session::Session,
        thread::{
            FenceSpan, Interrupt, LatestTurn, MAX_FENCE_SPANS, MAX_RESTARTS, PendingInput, Repeated, ResultRequest,
            Thread, ThreadResult,
        },
    },
    status::{Settled, Status, StatusKind},
    time::UnixMillis,
};

/// Returns the session that `first` opens. `None` if `first` does not open a session.
#[must_use]
pub fn open(id: SessionId, first: &Recorded) -> Option<Session> {
    match &first.event {
        Event::Session(SessionEvent::Opened(settings)) => {
            let mut session = Session::new(id, (**settings).clone(), first.time);
            session.sequence = first.sequence;
            Some(session)
        }
        Event::Session(_) | Event::Thread(..) => None,
    }
}

/// Folds one event into the session.
pub fn evolve(session: &mut Session, recorded: &Recorded) {
    session.sequence = recorded.sequence;
    session.updated = recorded.time;
    match &recorded.event {
        Event::Session(event) => match event {
            SessionEvent::Opened(_) => {}
            SessionEvent::Updated(change) => session.apply_settings(change),
            SessionEvent::Closed => session.closed = true,
        },
        Event::Thread(id, ThreadEvent::Spawned(spawned)) => {
            spawn(session, *id, spawned, recorded);
            if let Some(item) = spawned.item {
                session.update_group(item.group, |group| group.start(item.item, *id, recorded.time));
            }
        }
        Event::Thread(id, event) => {
            graph(session, *id, event);
            approvals(session, *id, event, recorded);
            groups(session, *id, event, recorded);
            let stall = session.settings.stall;
            let changed = session.update(*id, |thread| {
                let (was_open, spent_before) = (thread.status.kind().is_open(), thread.total_usage());
                let was_queued = thread.status == Status::Queued;
                thread.apply(event, recorded.sequence, recorded.time);
                if matches!(event, ThreadEvent::InputQueued { .. }) {
                    thread.traceparent.clone_from(&recorded.metadata.traceparent);
                }
                thread.end_conditions(&stall);
                let is_open = thread.status.kind().is_open();
                let opened = (was_open != is_open).then_some(is_open);
                let usage = (spent_before, thread.total_usage());
                (thread.spawned.parent, opened, was_queued, usage)
            });
            let Some((parent, opened, was_queued, (spent_before, spent))) = changed else {
                return;
            };
            if was_queued && matches!(event, ThreadEvent::Admitted) {
                session.waits.lend_to(*id);
            }
            if let (Some(parent), Some(opened)) = (parent, opened) {
                count_open_child(session, parent, opened);
            }
            add_usage(session, *id, spent_before, spent);
            if let ThreadEvent::BudgetUpdated(budget) = event {
                session.set_budget(*id, *budget);
            }
            deliver(session, *id, event, recorded);
        }
    }
}

/// Folds an event into the created edges. An edge ends when either thread closes, and a resume does not restore it.
fn graph(session: &mut Session, id: ThreadId, event: &ThreadEvent) {
    if let ThreadEvent::EdgeCreated(edge) = event {
        session.connect(edge);
    } else if let ThreadEvent::EdgeDeleted(edge) = event {
        session.disconnect(*edge);
    } else if let ThreadEvent::Closed { .. } = event {
        let ended: Vec<EdgeId> = session.created_edges_of(id).map(|edge| edge.id).collect();
        for edge in ended {
            session.disconnect(edge);
        }
    }
}

/// Folds an event into the groups.
fn groups(session: &mut Session, id: ThreadId, event: &ThreadEvent, recorded: &Recorded) {
    match event {
        ThreadEvent::GroupCreated { spec, approval } => {
            let stage = approval.map_or(GroupStage::Running, GroupStage::AwaitingApproval);
            session.put_group(Group::new(Arc::clone(spec), id, stage, recorded.time));
        }
        ThreadEvent::GroupUpdated { group, limits } => session.update_group(*group, |group| {
            group.limits = *limits;
            group.updated = recorded.time;
        }),
        ThreadEvent::GroupItemEnded { item, outcome, reason } => {
            let attempt = session
                .group(item.group)
                .and_then(|group| group.item(item.item)?.thread);
            session.update_group(item.group, |group| {
                group.end(item.item, *outcome, reason);
                group.updated = recorded.time;
            });
            if let Some(thread) = attempt {
                session.update(thread, |thread| thread.item_has_ended = true);
            }
        }
        ThreadEvent::GroupEnding { group, outcome, reason } => session.update_group(*group, |group| {
            group.cancel_pending(reason);
            group.stage = GroupStage::Ending(*outcome, reason.clone());
            group.updated = recorded.time;
        }),
        ThreadEvent::GroupEnded {
            group,
            outcome,
            reason,
            table,
        } => session.update_group(*group, |group| {
            group.stage = GroupStage::Ended(*outcome, reason.clone());
            group.table = Some((**table).clone());
            group.updated = recorded.time;
        }),
        ThreadEvent::GroupRetried(group) => session.update_group(*group, |group| {
            group.retry_failed();
            group.stage = GroupStage::Running;
            group.table = None;
            group.updated = recorded.time;
        }),
        ThreadEvent::ApprovalResolved {
            approval,
            decision,
            reason,
            ..
        } => {
            let waiting = |group: &&Arc<Group>| group.stage == GroupStage::AwaitingApproval(*approval);
            let waiting = session.open_groups().find(waiting).map(|group| group.spec.id);
            if let Some(group) = waiting {
                session.update_group(group, |group| {
                    group.updated = recorded.time;
                    if *decision == ApprovalDecision::Granted {
                        group.stage = GroupStage::Running;
                    } else {
                        let reason = format!("its approval was {}: {reason}", decision.as_str());
                        group.cancel_pending(&reason);
                        group.stage = GroupStage::Ending(GroupOutcome::Cancelled, reason);
                    }
                });
            }
        }
        ThreadEvent::Spawned(_)
        | ThreadEvent::SpawnFailed { .. }
        | ThreadEvent::Admitted
        | ThreadEvent::Placed { .. }
        | ThreadEvent::InputQueued { .. }
        | ThreadEvent::TurnDispatched { .. }
        | ThreadEvent::TurnStarted { .. }
        | ThreadEvent::InputDelivered { .. }
        | ThreadEvent::InterruptRequested { .. }
        | ThreadEvent::TurnEnded { .. }
        | ThreadEvent::ResultReported { .. }
        | ThreadEvent::NoteSet(_)
        | ThreadEvent::ConditionChanged { .. }
        | ThreadEvent::UsageRecorded { .. }
        | ThreadEvent::BudgetUpdated(_)
        | ThreadEvent::ArtifactRecorded { .. }
        | ThreadEvent::ToolDenied { .. }
        | ThreadEvent::CloseRequested(_)
        | ThreadEvent::Closed { .. }
        | ThreadEvent::Resumed(_)
        | ThreadEvent::EdgeCreated(_)
        | ThreadEvent::EdgeDeleted(_)
        | ThreadEvent::HandoffSent(_)
        | ThreadEvent::MailAcknowledged(_)
        | ThreadEvent::ApprovalRequested { .. } => {}
    }
}

fn approvals(session: &mut Session, id: ThreadId, event: &ThreadEvent, recorded: &Recorded) {
    if let ThreadEvent::ApprovalRequested {
        approval,
        kind,
        subject,
        deadline,
        edge,
        call,
    } = event
    {
        let requested = Approval {
            id: *approval,
            thread: id,
            kind: *kind,
            subject: subject.clone(),
            sequence: recorded.sequence,
            requested: recorded.time,
            deadline: *deadline,
            edge: edge.clone(),
            call: call.clone(),
            verdict: None,
        };
        session.remember_approval(requested);
    } else if let ThreadEvent::ApprovalResolved {
        approval,
        decision,
        by,
        reason,
    } = event
        && let Some(decided) = session.approvals.get(approval).cloned()
    {
        session.pending.remove(&(decided.deadline, *approval));
        session.moot.remove(approval);
        let mut decided = Arc::unwrap_or_clone(decided);
        decided.verdict = Some(Verdict {
            decision: *decision,
            by: by.clone(),
            reason: reason.clone(),
        });
        session.remember_approval(decided);
        forget_decided(session);
    } else if let ThreadEvent::CloseRequested(_) = event {
        make_moot(session, |session, approval| session.is_within(approval.thread, id));
    } else if let ThreadEvent::Closed { .. } = event {
        make_moot(session, |_, approval| approval.thread == id);
    } else if let ThreadEvent::TurnEnded { .. } | ThreadEvent::Placed { .. } = event
        && session
            .thread(id)
            .is_some_and(|thread| thread.conditions.contains_key(&ConditionKind::AwaitingToolApproval))
    {
        // The turn that would have made the call is over.
        make_moot(session, |_, approval| {
            approval.thread == id && approval.kind == ApprovalKind::Tool
        });
    }
}

/// Marks the pending approvals that match as moot. The cost is proportional to the number of pending approvals.
fn make_moot(session: &mut Session, is_gone: impl Fn(&Session, &Approval) -> bool) {
    let before: &Session = session;
    let moot: Vec<ApprovalId> = before
        .pending_approvals()
        .filter(|approval| is_gone(before, approval))
        .map(|approval| approval.id)
        .collect();
    for id in moot {
        session.moot.insert(id);
    }
}

/// Removes the decided approval with the oldest request.
fn forget_decided(session: &mut Session) {
    if session.decided.len() > MAX_DECIDED
        && let Some((_, oldest)) = session.decided.remove_min()
    {
        session.approvals.remove(&oldest);
    }
}

/// Adds the change of a thread's usage to the sums of the thread and all its ancestors. The cost is proportional to the
/// thread's depth.
fn add_usage(session: &mut Session, id: ThreadId, before: Usage, after: Usage) {
    if before == after {
        return;
    }
    let lineage: Vec<ThreadId> = session.lineage(id).map(|thread| thread.id).collect();
    for id in lineage {
        let item = session.update(id, |thread| {
            thread.subtree_usage = thread.subtree_usage.with_part(before, after);
            thread.spawned.item
        });
        if let Some(item) = item.flatten() {
            session.update_group(item.group, |group| group.usage = group.usage.with_part(before, after));
        }
    }
}

/// Delivers the mail of an event to its receivers. Outcomes of threads below a fence are not delivered. A whole cascade
/// causes one letter, to the parent of its top thread.
fn deliver(session: &mut Session, id: ThreadId, event: &ThreadEvent, recorded: &Recorded) {
    let (to, body) = match event {
        ThreadEvent::GroupEnded {
            group,
            outcome,
            reason,
            table,
        } => {
            let ended = Body::GroupEnded {
                group: *group,
                outcome: *outcome,
                reason: reason.clone(),
                table: table.id,
            };
            (Some(id), ended)
        }
        // Only the end of the following repair turn is delivered.
        ThreadEvent::TurnEnded {
            result_repair: true, ..
        } => return,
        ThreadEvent::HandoffSent(handoff) => (Some(handoff.to), Body::Handoff(Arc::new((**handoff).clone()))),
        ThreadEvent::TurnEnded { .. } | ThreadEvent::Closed { .. } => {
            let Some(thread) = session.thread(id) else { return };
            let settled = Body::Settled {
                child: id,
                status: thread.status.clone(),
            };
            // A group sends its parent one letter when it ends, instead of a letter for each item.
            let is_item = thread.spawned.item.is_some();
            (
                thread.spawned.parent.filter(|_| !is_item && !session.is_closing(id)),
                settled,
            )
        }
        ThreadEvent::Spawned(_)
        | ThreadEvent::SpawnFailed { .. }
        | ThreadEvent::Admitted
        | ThreadEvent::Placed { .. }
        | ThreadEvent::InputQueued { .. }
        | ThreadEvent::TurnDispatched { .. }
        | ThreadEvent::TurnStarted { .. }
        | ThreadEvent::InputDelivered { .. }
        | ThreadEvent::InterruptRequested { .. }
        | ThreadEvent::ResultReported { .. }
        | ThreadEvent::NoteSet(_)
        | ThreadEvent::ConditionChanged { .. }
        | ThreadEvent::UsageRecorded { .. }
        | ThreadEvent::BudgetUpdated(_)
        | ThreadEvent::ArtifactRecorded { .. }
        | ThreadEvent::ToolDenied { .. }
        | ThreadEvent::CloseRequested(_)
        | ThreadEvent::Resumed(_)
        | ThreadEvent::EdgeCreated(_)
        | ThreadEvent::EdgeDeleted(_)
        | ThreadEvent::MailAcknowledged(_)
        | ThreadEvent::GroupCreated { .. }
        | ThreadEvent::GroupUpdated { .. }
        | ThreadEvent::GroupItemEnded { .. }
        | ThreadEvent::GroupEnding { .. }
        | ThreadEvent::GroupRetried(_)
        | ThreadEvent::ApprovalRequested { .. }
        | ThreadEvent::ApprovalResolved { .. } => return,
    };
    let takes_mail = |receiver: &&Arc<Thread>| receiver.status.kind().is_open() && !session.is_closing(receiver.id);
    let Some(receiver) = to.and_then(|to| session.thread(to)).filter(takes_mail) else {
        return;
    };
    let letter = Letter {
        sequence: recorded.sequence,
        time: recorded.time,
        body,
    };
    session.update(receiver.id, |receiver| receiver.mail.put(letter));
}

fn spawn(session: &mut Session, id: ThreadId, spawned: &Arc<Spawned>, recorded: &Recorded) {
    if session.thread(id).is_some() {
        return;
    }
    let status = match spawned.first_status {
        StatusKind::Queued => Status::Queued,
        StatusKind::AwaitingApproval => Status::AwaitingApproval,
        StatusKind::Running => Status::Running,
        StatusKind::PendingInit
        | StatusKind::Completed
        | StatusKind::Errored
        | StatusKind::Interrupted
        | StatusKind::Shutdown => Status::PendingInit,
    };
    let first_input = InputNumber::ZERO.next();
    let pending_inputs = spawned
        .input
        .iter()
        .map(|content| {
            Arc::new(PendingInput {
                number: first_input,
                content: content.clone(),
                steers: false,
                result_repairs: spawned.result_repairs,
            })
        })
        .collect();
    session.put(Thread {
        id,
        spawned: Arc::clone(spawned),
        spawn_sequence: recorded.sequence,
        created: recorded.time,
        status,
        since: recorded.time,
        status_sequence: recorded.sequence,
        generation: Generation::new(1),
        dispatched_generation: Generation::ZERO,
        note: Arc::clone(&spawned.note),
        effective: spawned.effective.clone(),
        grant: spawned.grant.clone(),
        sandbox: spawned.sandbox,
        budget: spawned.budget,
        children: Vector::new(),
        open_children: 0,
        fence: None,
        runner: None,
        turn: LatestTurn::None,
        pending_inputs,
        last_input: if spawned.input.is_some() {
            first_input
        } else {
            InputNumber::ZERO
        },
        result_request: None,
        result: None,
        item_has_ended: false,
        continues: false,
        interrupt: None,
        last_report: ReportSequence::ZERO,
        conditions: imbl::OrdMap::new(),
        usage: Usage::default(),
        metered: recorded.time,
        earlier_usage: Usage::default(),
        subtree_usage: Usage::default(),
        mail: Mailbox::default(),
        mail_shown: Sequence::ZERO,
        mail_acknowledged: Sequence::ZERO,
        woken_up_to: Sequence::ZERO,
        fenced: Vec::new(),
        repeated: Repeated::default(),
        repeats_turn: false,
        restarts: Vec::new(),
        traceparent: recorded.metadata.traceparent.clone(),
        updated: recorded.time,
        sequence: recorded.sequence,
    });
}

/// Appends an entry. Removes the oldest entry if there are more than `most` entries.
fn push_bounded<T>(latest: &mut Vec<T>, newest: T, most: usize) {
    latest.push(newest);
    if latest.len() > most {
        latest.remove(0);
    }
}

fn count_open_child(session: &mut Session, parent: ThreadId, opened: bool) {
    session.update(parent, |parent| {
        parent.open_children = if opened {
            parent.open_children + 1
        } else {
            parent.open_children.saturating_sub(1)
        };
    });
}

impl Thread {
    fn apply(&mut self, event: &ThreadEvent, sequence: Sequence, time: UnixMillis) {
        self.sequence = sequence;
        self.updated = time;
        match event {
            ThreadEvent::Admitted => self.become_at(Status::PendingInit, sequence, time),
            ThreadEvent::Placed { runner, generation } => {
                if self.status == Status::Running {
                    push_bounded(&mut self.restarts, time, MAX_RESTARTS);
                }
                self.runner = Some(runner.clone());
                self.begin_generation(*generation, time);
                self.become_at(Status::PendingInit, sequence, time);
            }
            ThreadEvent::InputQueued {
                number,
                input,
                steers,
                result_repairs,
                ..
            } => {
                self.last_input = *number;
                self.conditions.remove(&ConditionKind::AwaitingInput);
                self.pending_inputs.push_back(Arc::new(PendingInput {
                    number: *number,
                    content: input.clone(),
                    steers: *steers,
                    result_repairs: *result_repairs,
                }));
                if self.status.kind().is_settled() {
                    self.become_at(Status::Queued, sequence, time);
                }
            }
            ThreadEvent::TurnDispatched {
                turn,
                generation,
                inputs,
                mail_up_to,
                ..
            } => {
                self.dispatched_generation = *generation;
                self.mail_shown = *mail_up_to;
                self.woken_up_to = self.woken_up_to.max(*mail_up_to);
                let (consumed, left): (Vector<_>, Vector<_>) = self
                    .pending_inputs
                    .iter()
                    .cloned()
                    .partition(|input| inputs.contains(&input.number));
                self.pending_inputs = left;
                self.request_result(&consumed);
                self.conditions.remove(&ConditionKind::AwaitingInput);
                self.turn = LatestTurn::Dispatched {
                    turn: *turn,
                    inputs: consumed,
                };
            }
            ThreadEvent::TurnStarted { turn, report, .. } => {
                self.last_report = *report;
                self.repeats_turn = false;
                self.turn = LatestTurn::Running {
                    turn: *turn,
                    inputs: self.turn.inputs(),
                };
                self.metered = time;
                self.become_at(Status::Running, sequence, time);
            }
            ThreadEvent::InputDelivered { number, report, .. } => {
                self.last_report = *report;
                let (delivered, left): (Vector<_>, Vector<_>) = self
                    .pending_inputs
                    .iter()
                    .cloned()
                    .partition(|input| input.number == *number);
                self.pending_inputs = left;
                if let LatestTurn::Running { inputs, .. } = &mut self.turn {
                    inputs.append(delivered);
                }
            }
            ThreadEvent::InterruptRequested { turn, reason } => {
                self.interrupt = Some(Interrupt {
                    turn: *turn,
                    reason: reason.clone(),
                });
            }
            ThreadEvent::TurnEnded {
                turn,
                outcome,
                usage,
                digests,
                report,
                ..
            } => {
                self.repeated = stall::repeated_after(self.repeated, outcome.kind(), **digests);
                self.mail_shown = Sequence::ZERO;
                if self.turn.awaits_dispatch() {
                    self.woken_up_to = self.woken_up_to.max(self.newest_letter());
                }
                if *report > ReportSequence::ZERO {
                    self.last_report = *report;
                }
                self.usage = self.usage.updated(*usage);
                self.interrupt = None;
                if !self.turn.awaits_dispatch() {
                    self.repeats_turn = false;
                    self.turn = LatestTurn::Ended {
                        turn: self.turn.number(),
                    };
                }
                self.become_at(Status::Settled(Arc::new(outcome.clone())), sequence, time);
                // If the turn was stopped before a runner received it, the thread waits for new input.
                self.continues = *turn > Turn::ZERO && !self.pending_inputs.is_empty();
            }
            ThreadEvent::ResultReported { turn, result } => {
                self.result_request = None;
                self.result = Some(Arc::new(ThreadResult {
                    turn: *turn,
                    content: result.clone(),
                }));
            }
            ThreadEvent::NoteSet(note) => self.note = note.as_str().into(),
            ThreadEvent::ConditionChanged { kind, active, reason } => {
                if *active {
                    self.conditions.insert(*kind, (time, reason.clone()));
                } else {
                    self.conditions.remove(kind);
                }
            }
            ThreadEvent::UsageRecorded { usage, .. } => {
                self.usage = self.usage.updated(*usage);
                self.metered = time;
            }
            ThreadEvent::ArtifactRecorded { report, .. } => self.last_report = *report,
            ThreadEvent::CloseRequested(fence) => {
                self.fence = Some(Arc::new(fence.clone()));
                let span = FenceSpan {
                    from: sequence,
                    since: time,
                    until: None,
                };
                push_bounded(&mut self.fenced, span, MAX_FENCE_SPANS);
            }
            ThreadEvent::Closed { reason, .. } => self.close(reason, sequence, time),
            ThreadEvent::Resumed(resumed) => {
                self.begin_generation(resumed.generation, time);
                self.effective = resumed.effective.clone();
                self.grant = resumed.grant.clone();
                self.sandbox = resumed.sandbox;
                self.become_at(Status::Settled(Arc::new(resumed.settled.clone())), sequence, time);
            }
            // Before a spawn is approved, no other approval of the thread can be decided: the thread has no turn, and
            // its token is not valid.
            ThreadEvent::ApprovalResolved {
                decision: ApprovalDecision::Granted,
                ..
            } if self.status == Status::AwaitingApproval => self.become_at(Status::Queued, sequence, time),
            // These events are folded into the session elsewhere, or are relevant to readers of the log only.
            ThreadEvent::Spawned(_)
            | ThreadEvent::SpawnFailed { .. }
            | ThreadEvent::BudgetUpdated(_)
            | ThreadEvent::ToolDenied { .. }
            | ThreadEvent::EdgeCreated(_)
            | ThreadEvent::EdgeDeleted(_)
            | ThreadEvent::HandoffSent(_)
            | ThreadEvent::GroupCreated { .. }
            | ThreadEvent::GroupUpdated { .. }
            | ThreadEvent::GroupItemEnded { .. }
            | ThreadEvent::GroupEnding { .. }
            | ThreadEvent::GroupEnded { .. }
            | ThreadEvent::GroupRetried(_)
            | ThreadEvent::ApprovalRequested { .. }
            | ThreadEvent::ApprovalResolved { .. } => {}
            ThreadEvent::MailAcknowledged(up_to) => {
                self.mail.acknowledge(*up_to);
                self.mail_acknowledged = self.mail_acknowledged.max(*up_to);
            }
        }
    }

    /// Stores the result request of the newest consumed input that has one.
    fn request_result(&mut self, consumed: &Vector<Arc<PendingInput>>) {
        let requests = consumed.iter().rev();
        let newest = requests.filter_map(|input| Some((input, input.result_repairs?))).next();
        if let Some((input, repairs)) = newest {
            self.result = None;
            self.result_request = Some(Arc::new(ResultRequest {
                input: input.content.clone(),
                repairs_left: repairs,
            }));
        }
    }

    /// Clears UNREACHABLE if the thread is not active, and STALLED if the stall has ended.
    fn end_conditions(&mut self, rule: &StallRule) {
        if !self.status.kind().is_active() {
            self.conditions.remove(&ConditionKind::Unreachable);
        }
        if stall::is_over(self, rule) {
            self.conditions.remove(&ConditionKind::Stalled);
        }
    }

    fn become_at(&mut self, status: Status, sequence: Sequence, time: UnixMillis) {
        if self.status != status {
            self.since = time;
            self.status_sequence = sequence;
        }
        self.status = status;
        self.continues = false;
    }

    /// Starts a new generation. Its report numbers start at 1, and its runner has not received the input of the turn in
    /// flight, so that input is pending again. The running time of the turn still counts as spent.
    fn begin_generation(&mut self, generation: Generation, time: UnixMillis) {
        if generation == self.generation {
            return;
        }
        self.usage.wall_time = self.usage.wall_time.saturating_add(budget::running_time(self, time));
        self.generation = generation;
        self.last_report = ReportSequence::ZERO;
        self.earlier_usage = self.earlier_usage.plus(self.usage);
        self.usage = Usage::default();
        self.interrupt = None;
        self.conditions.remove(&ConditionKind::Unreachable);
        // The program reports its policy gaps again at each start.
        self.conditions.remove(&ConditionKind::PolicyGap);
        self.repeats_turn |= self.runs_turn();
        if !self.turn.awaits_dispatch() {
            let mut waiting = self.turn.inputs();
            waiting.append(std::mem::take(&mut self.pending_inputs));
            self.pending_inputs = waiting;
            self.turn = LatestTurn::Ended {
                turn: self.turn.number(),
            };
        }
    }

    fn close(&mut self, reason: &str, sequence: Sequence, time: UnixMillis) {
        let before = match &self.status {
            Status::Settled(settled) => Some(settled.clone()),
            Status::AwaitingApproval => None,
            Status::Queued | Status::PendingInit | Status::Running => Some(Arc::new(Settled::Interrupted {
                reason: reason.to_owned(),
            })),
            Status::Shutdown { before, .. } => before.clone(),
        };
        self.begin_generation(self.generation.next(), time);
        self.result_request = None;
        self.conditions.remove(&ConditionKind::AwaitingInput);
        self.fence = None;
        if let Some(span) = self.fenced.last_mut() {
            span.until = span.until.or(Some(sequence));
        }
        self.runner = None;
        self.become_at(
            Status::Shutdown {
                reason: reason.to_owned(),
                before,
            },
            sequence,
            time,
        );
    }
}
