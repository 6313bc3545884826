//! A client's view of a session, folded from the messages of a watch.

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod whole_log;

use std::collections::{HashMap, HashSet};

use troupe_proto::supervisor::v1::{
    Approval, ApprovalDecision, ApprovalRequested, ApprovalThread, Budget, Condition, ConditionKind, Event, Group,
    GroupCreated, GroupState, Session, SessionUpdated, Status, StatusKind, Telemetry, Thread, ThreadSpawned,
    TurnOutcome, Usage, WatchThreadsResponse, event::Kind, watch_threads_response::Message,
};

use crate::ui;

/// The session with its threads in spawn order, its waiting approvals and its open groups.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SessionView {
    session: Option<Session>,
    threads: Vec<Thread>,
    places: HashMap<String, usize>,
    approvals: Vec<Approval>,
    groups: Vec<Group>,
    is_complete: bool,
    unclear: Unclear,
}

/// The parts of a session that must be read again, because events do not contain their new values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unclear {
    /// Threads to read again.
    pub(crate) threads: HashSet<String>,
    /// Groups to read again.
    pub(crate) groups: HashSet<String>,
}

impl SessionView {
    /// Applies a message. Unknown kinds change nothing.
    pub(crate) fn apply(&mut self, response: &WatchThreadsResponse) {
        match &response.message {
            Some(Message::Snapshot(snapshot)) => {
                if let Some(session) = &snapshot.session {
                    // The first part of a snapshot replaces the complete view.
                    *self = Self {
                        session: Some(session.clone()),
                        ..Self::default()
                    };
                }
                for thread in &snapshot.threads {
                    self.put(thread.clone());
                }
                self.approvals.extend_from_slice(&snapshot.approvals);
                self.groups.extend_from_slice(&snapshot.groups);
                self.is_complete |= snapshot.last;
            }
            Some(Message::Event(event)) => self.apply_event(event),
            Some(Message::Telemetry(telemetry)) => self.apply_telemetry(telemetry),
            Some(Message::Bookmark(_) | Message::Reset(_) | Message::Output(_)) | None => {}
        }
    }

    /// Returns the session with the values that events and snapshots contain.
    pub(crate) const fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    /// Returns whether the first snapshot is complete.
    pub(crate) const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the approvals that wait for a decision, oldest first.
    pub(crate) fn approvals(&self) -> &[Approval] {
        &self.approvals
    }

    /// Returns the groups that have not ended, oldest first.
    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Removes and returns the parts to read again.
    pub(crate) fn take_unclear(&mut self) -> Unclear {
        std::mem::take(&mut self.unclear)
    }

    /// Adds or replaces a thread that was read, unless later events have changed it.
    pub(crate) fn put_read_thread(&mut self, thread: Thread) {
        let known = self.thread(&thread.thread_id);
        if known.is_none_or(|known| known.sequence <= thread.sequence) {
            self.put(thread);
        }
    }

    /// Replaces a group that was read. Removes it if it has ended.
    pub(crate) fn put_read_group(&mut self, group: Group) {
        let id = group_id(&group).to_owned();
        match self.groups.iter_mut().find(|known| group_id(known) == id) {
            Some(known) => *known = group,
            None => self.groups.push(group),
        }
        self.groups.retain(is_open);
    }

    /// Removes the closed threads.
    pub(crate) fn forget_closed(&mut self) {
        self.threads
            .retain(|thread| ui::status_of(thread) != StatusKind::Shutdown);
        let ids = self.threads.iter().map(|thread| thread.thread_id.clone());
        self.places = ids.zip(0..).collect();
    }

    /// Returns the threads in spawn order, parents before children.
    pub(crate) fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// Returns a thread by its id.
    pub(crate) fn thread(&self, id: &str) -> Option<&Thread> {
        self.threads.get(self.place(id)?)
    }

    /// Returns the index of a thread in the spawn order.
    pub(crate) fn place(&self, id: &str) -> Option<usize> {
        self.places.get(id).copied()
    }

    /// Returns whether the session is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.closed)
    }

    fn put(&mut self, thread: Thread) {
        match self
            .places
            .get(&thread.thread_id)
            .and_then(|place| self.threads.get_mut(*place))
        {
            Some(known) => *known = thread,
            None => {
                self.places.insert(thread.thread_id.clone(), self.threads.len());
                self.threads.push(thread);
            }
        }
    }

    fn apply_telemetry(&mut self, telemetry: &Telemetry) {
        let Some(thread) = self.thread_mut(&telemetry.thread_id) else {
            return;
        };
        add_telemetry(thread, telemetry);
    }

    fn thread_mut(&mut self, id: &str) -> Option<&mut Thread> {
        self.places.get(id).and_then(|place| self.threads.get_mut(*place))
    }

    fn apply_event(&mut self, event: &Event) {
        match &event.kind {
            Some(Kind::SessionOpened(opened)) => self.session.clone_from(&opened.session),
            Some(Kind::SessionClosed(_)) => {
                if let Some(session) = &mut self.session {
                    session.closed = true;
                }
            }
            Some(Kind::SessionUpdated(updated)) => {
                if let Some(session) = &mut self.session {
                    update_session(session, updated);
                }
                // The root has the budget of the session.
                if let (Some(budget), Some(root)) = (updated.budget, self.threads.first_mut()) {
                    root.budget = bounded(Some(budget));
                }
            }
            Some(Kind::ThreadSpawned(spawned)) => {
                self.put(spawned_thread(event, spawned));
                if !spawned.group_id.is_empty() {
                    self.unclear.groups.insert(spawned.group_id.clone());
                }
            }
            Some(kind) => {
                self.apply_approval(event, kind);
                self.apply_group(event, kind);
                self.apply_to_thread(event, kind);
            }
            None => {}
        }
    }

    fn apply_to_thread(&mut self, event: &Event, kind: &Kind) {
        let Some(thread) = self.thread_mut(&event.thread_id) else {
            // A closed thread that is not part of the snapshot is open again.
            if matches!(kind, Kind::ThreadResumed(_)) {
                self.unclear.threads.insert(event.thread_id.clone());
            }
            return;
        };
        let generation = thread.generation;
        change(thread, event, kind);
        end_conditions(thread, kind);
        thread.sequence = event.sequence;
        thread.update_time = event.time;
        let is_stalled = |condition: &Condition| condition.kind() == ConditionKind::Stalled;
        let is_unclear = match kind {
            // A turn with a different output ends the condition STALLED without a separate event.
            Kind::TurnEnded(_) => thread.conditions.iter().any(is_stalled),
            // Only the supervisor knows whether the earlier attempt began a turn, which then counts in the usage.
            Kind::ThreadPlaced(_) => thread.generation != generation,
            Kind::ThreadResumed(_) => true,
            _ => false,
        };
        if is_unclear {
            self.unclear.threads.insert(event.thread_id.clone());
        }
    }

    fn apply_approval(&mut self, event: &Event, kind: &Kind) {
        match kind {
            Kind::ApprovalRequested(requested) => {
                let approval = self.requested_approval(event, requested);
                self.approvals.push(approval);
            }
            Kind::ApprovalResolved(resolved) => {
                self.approvals
                    .retain(|approval| approval.approval_id != resolved.approval_id);
            }
            _ => {}
        }
    }

    fn requested_approval(&self, event: &Event, requested: &ApprovalRequested) -> Approval {
        let chain = std::iter::successors(self.thread(&event.thread_id), |thread| {
            self.thread(&thread.parent_thread_id)
        });
        let threads = chain.map(|thread| ApprovalThread {
            thread_id: thread.thread_id.clone(),
            agent_type: thread.agent_type.clone(),
            alias: thread.alias.clone(),
        });
        Approval {
            approval_id: requested.approval_id.clone(),
            session_id: event.session_id.clone(),
            thread_id: event.thread_id.clone(),
            kind: requested.kind,
            subject: requested.subject.clone(),
            create_time: event.time,
            deadline: requested.deadline,
            call_sha256: requested.call_sha256.clone(),
            content: requested.content.clone(),
            threads: threads.collect(),
            ..Approval::default()
        }
    }

    /// Applies an event to its group. Events contain neither the counts nor the usage of a group.
    fn apply_group(&mut self, event: &Event, kind: &Kind) {
        let id = match kind {
            Kind::GroupCreated(created) => {
                self.groups.push(created_group(event, created));
                return;
            }
            Kind::GroupEnded(ended) => {
                self.groups.retain(|group| group_id(group) != ended.group_id);
                return;
            }
            Kind::GroupUpdated(updated) => &updated.group_id,
            Kind::GroupItemEnded(ended) => &ended.group_id,
            Kind::GroupEnding(ending) => &ending.group_id,
            Kind::GroupRetried(retried) => &retried.group_id,
            _ => return,
        };
        self.unclear.groups.insert(id.clone());
    }
}

/// Returns the id of a group.
pub(crate) fn group_id(group: &Group) -> &str {
    group
        .spec
        .as_ref()
        .map(|spec| spec.group_id.as_str())
        .unwrap_or_default()
}

/// Returns whether a group has not ended.
pub(crate) fn is_open(group: &Group) -> bool {
    match group.state() {
        GroupState::Succeeded | GroupState::Failed | GroupState::Cancelled => false,
        GroupState::Unspecified | GroupState::AwaitingApproval | GroupState::Running | GroupState::Ending => true,
    }
}

fn created_group(event: &Event, created: &GroupCreated) -> Group {
    let spec = created.spec.clone().unwrap_or_default();
    let state = match created.approval_id.as_str() {
        "" => GroupState::Running,
        _ => GroupState::AwaitingApproval,
    };
    Group {
        session_id: event.session_id.clone(),
        parent_thread_id: event.thread_id.clone(),
        state: state.into(),
        limits: spec.limits,
        pending: spec.item_count,
        approval_id: created.approval_id.clone(),
        create_time: event.time,
        update_time: event.time,
        spec: Some(spec),
        ..Group::default()
    }
}

fn update_session(session: &mut Session, updated: &SessionUpdated) {
    if updated.mode.is_some() {
        session.set_mode(updated.mode());
    }
    if updated.orchestration.is_some() {
        session.set_orchestration(updated.orchestration());
    }
    session.paused = updated.paused.unwrap_or(session.paused);
    session.budget = updated.budget.or(session.budget);
    if let Some(limits) = &updated.limits {
        let present = session.limits.get_or_insert_default();
        present.max_depth = limits.max_depth.or(present.max_depth);
        present.max_threads = limits.max_threads.or(present.max_threads);
        present.max_open_threads = limits.max_open_threads.or(present.max_open_threads);
        present.max_total_threads = limits.max_total_threads.or(present.max_total_threads);
    }
}

/// Sets the latest values of a thread. Telemetry of an earlier attempt is ignored.
pub(crate) fn add_telemetry(thread: &mut Thread, telemetry: &Telemetry) {
    if thread.generation != telemetry.generation {
        return;
    }
    thread.usage = telemetry.usage;
    thread.context_left_percent = telemetry.context_left_percent;
    thread.last_tool.clone_from(&telemetry.last_tool);
    thread.activity.clone_from(&telemetry.activity);
    thread.plan.clone_from(&telemetry.plan);
}

/// Applies an event to its thread, as defined by the table in STATE.md 2.
fn change(thread: &mut Thread, event: &Event, kind: &Kind) {
    let before = ui::status_of(thread);
    let is_settled = matches!(
        before,
        StatusKind::Completed | StatusKind::Errored | StatusKind::Interrupted
    );
    match kind {
        Kind::ThreadAdmitted(_) => {
            // An admitted thread that was settled begins its next turn: mail woke the thread, or input had waited for
            // the end of the earlier turn.
            thread.turn += u32::from(is_settled);
            become_status(thread, event, StatusKind::PendingInit, "", "");
        }
        Kind::ThreadPlaced(placed) => {
            thread.runner_id.clone_from(&placed.runner_id);
            begin_attempt(thread, placed.generation);
            if before == StatusKind::Running {
                become_status(thread, event, StatusKind::PendingInit, "", "");
            }
        }
        // If a slot is free, ThreadAdmitted follows in the same append.
        Kind::InputQueued(_) if is_settled => {
            thread.turn += 1;
            become_status(thread, event, StatusKind::Queued, "", "");
        }
        Kind::TurnDispatched(dispatched) => thread.turn = dispatched.turn,
        Kind::TurnStarted(started) => {
            thread.turn = started.turn;
            become_status(thread, event, StatusKind::Running, "", "");
        }
        Kind::TurnEnded(ended) => {
            let status = match ended.outcome() {
                TurnOutcome::Completed => StatusKind::Completed,
                TurnOutcome::Errored => StatusKind::Errored,
                TurnOutcome::Interrupted | TurnOutcome::Unspecified => StatusKind::Interrupted,
            };
            become_status(thread, event, status, &ended.message, &ended.reason);
            thread.activity.clear();
            // The turn number is 0 if the turn ended before a runner received it.
            thread.turn = match ended.turn {
                0 => thread.turn.saturating_sub(1),
                turn => turn,
            };
            if let Some(usage) = ended.usage {
                set_attempt_usage(thread, usage);
            }
        }
        Kind::NoteSet(note) => thread.thread_note.clone_from(&note.thread_note),
        Kind::ConditionChanged(changed) => {
            set_condition(thread, event, changed.kind(), changed.active, &changed.reason);
        }
        Kind::UsageRecorded(recorded) => set_attempt_usage(thread, recorded.usage.unwrap_or_default()),
        Kind::BudgetUpdated(updated) => thread.budget = bounded(updated.budget),
        Kind::CloseRequested(requested) => {
            set_condition(thread, event, ConditionKind::Closing, true, &requested.reason);
        }
        Kind::ThreadClosed(closed) => {
            let message = thread.status.take().map(|status| status.message).unwrap_or_default();
            become_status(thread, event, StatusKind::Shutdown, &message, &closed.reason);
            thread.conditions.clear();
            thread.runner_id.clear();
            begin_attempt(thread, thread.generation + 1);
        }
        Kind::ThreadResumed(resumed) => {
            begin_attempt(thread, resumed.generation);
            thread.status.clone_from(&resumed.status);
            thread.tool_policy.clone_from(&resumed.tool_policy);
            thread.grant.clone_from(&resumed.grant);
            thread.sandbox = resumed.sandbox;
        }
        // If a slot is free, ThreadAdmitted follows in the same append. After a denial, ThreadClosed follows.
        Kind::ApprovalResolved(resolved)
            if before == StatusKind::AwaitingApproval && resolved.decision() == ApprovalDecision::Granted =>
        {
            thread.turn += 1;
            become_status(thread, event, StatusKind::Queued, "", "");
        }
        _ => {}
    }
}

/// Returns the budget, or `None` if the budget has no bound.
fn bounded(budget: Option<Budget>) -> Option<Budget> {
    budget.filter(|budget| *budget != Budget::default())
}

/// Starts an attempt: the usage so far becomes the usage of earlier attempts.
fn begin_attempt(thread: &mut Thread, generation: u32) {
    if thread.generation != generation {
        thread.generation = generation;
        thread.earlier_usage = thread.usage;
    }
}

/// Sets the usage of the current attempt. Telemetry may have reported a part of this usage before.
fn set_attempt_usage(thread: &mut Thread, usage: Usage) {
    let earlier = thread.earlier_usage.unwrap_or_default();
    thread.usage = Some(Usage {
        input_tokens: earlier.input_tokens.saturating_add(usage.input_tokens),
        cached_input_tokens: earlier.cached_input_tokens.saturating_add(usage.cached_input_tokens),
        output_tokens: earlier.output_tokens.saturating_add(usage.output_tokens),
        turns: earlier.turns.saturating_add(usage.turns),
        // The view shows no running time.
        wall_time: None,
        cost_micros: earlier.cost_micros.saturating_add(usage.cost_micros),
        unpriced_tokens: earlier.unpriced_tokens.saturating_add(usage.unpriced_tokens),
    });
}

/// Removes the conditions that an event ends implicitly.
fn end_conditions(thread: &mut Thread, kind: &Kind) {
    let is_active = matches!(ui::status_of(thread), StatusKind::PendingInit | StatusKind::Running);
    thread.conditions.retain(|condition| match condition.kind() {
        ConditionKind::AwaitingInput => !matches!(kind, Kind::InputQueued(_) | Kind::TurnDispatched(_)),
        ConditionKind::Unreachable => is_active && !matches!(kind, Kind::ThreadPlaced(_)),
        ConditionKind::NoRunner | ConditionKind::PolicyGap => !matches!(kind, Kind::ThreadPlaced(_)),
        ConditionKind::Unspecified
        | ConditionKind::Closing
        | ConditionKind::Stalled
        | ConditionKind::AwaitingToolApproval
        | ConditionKind::BudgetExhausted
        | ConditionKind::ContextLost => true,
    });
}

fn become_status(thread: &mut Thread, event: &Event, kind: StatusKind, message: &str, reason: &str) {
    thread.status = Some(Status {
        kind: kind.into(),
        message: message.to_owned(),
        since: event.time,
        reason: reason.to_owned(),
        content: None,
    });
    if kind != StatusKind::Queued {
        thread.queue_position = 0;
    }
}

fn set_condition(thread: &mut Thread, event: &Event, kind: ConditionKind, active: bool, reason: &str) {
    thread.conditions.retain(|condition| condition.kind() != kind);
    if active {
        thread.conditions.push(Condition {
            kind: kind.into(),
            since: event.time,
            reason: reason.to_owned(),
        });
    }
}

fn spawned_thread(event: &Event, spawned: &ThreadSpawned) -> Thread {
    let mut thread = Thread {
        session_id: event.session_id.clone(),
        thread_id: event.thread_id.clone(),
        parent_thread_id: spawned.parent_thread_id.clone(),
        depth: spawned.depth,
        agent_type: spawned.agent_type.clone(),
        agent_name: spawned.agent_name.clone(),
        label: spawned.label.clone(),
        alias: spawned.alias.clone(),
        thread_note: spawned.thread_note.clone(),
        model: spawned.model.clone(),
        reasoning_effort: spawned.reasoning_effort.clone(),
        origins: spawned.origins.clone(),
        provider: spawned.provider.clone(),
        sandbox: spawned.sandbox,
        tool_policy: spawned.tool_policy.clone(),
        source: spawned.source.clone(),
        generation: spawned.generation,
        create_time: event.time,
        update_time: event.time,
        sequence: event.sequence,
        working_directory: spawned.working_directory.clone(),
        edge_management: spawned.edge_management,
        spawn_list: spawned.spawn_list.clone(),
        grant: spawned.grant.clone(),
        close_policy: spawned.close_policy,
        wake_policy: spawned.wake_policy,
        budget: bounded(spawned.budget),
        ..Thread::default()
    };
    become_status(&mut thread, event, spawned.first_status(), "", "");
    let waits = matches!(spawned.first_status(), StatusKind::Queued | StatusKind::PendingInit);
    thread.turn = u32::from(waits);
    thread
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use troupe_proto::supervisor::v1::{
        CloseRequested, ConditionChanged, InputQueued, ThreadClosed, ThreadPlaced, TurnEnded, TurnStarted,
    };

    use super::*;

    fn message(sequence: u64, thread: &str, kind: Kind) -> WatchThreadsResponse {
        WatchThreadsResponse {
            sequence,
            message: Some(Message::Event(Event {
                thread_id: thread.to_owned(),
                sequence,
                kind: Some(kind),
                ..Event::default()
            })),
        }
    }

    fn spawn(depth: u32, parent: &str) -> Kind {
        Kind::ThreadSpawned(Box::new(ThreadSpawned {
            parent_thread_id: parent.to_owned(),
            depth,
            generation: 1,
            first_status: StatusKind::PendingInit.into(),
            agent_type: "explorer".to_owned(),
            ..ThreadSpawned::default()
        }))
    }

    fn status(view: &SessionView, id: &str) -> StatusKind {
        view.thread(id).unwrap().status.as_ref().unwrap().kind()
    }

    #[test]
    fn thread_status_follows_events() {
        let mut view = SessionView::default();
        view.apply(&message(1, "a", spawn(1, "")));
        assert_eq!(status(&view, "a"), StatusKind::PendingInit);
        view.apply(&message(2, "a", Kind::TurnStarted(TurnStarted::default())));
        assert_eq!(status(&view, "a"), StatusKind::Running);
        view.apply(&message(
            3,
            "a",
            Kind::TurnEnded(TurnEnded {
                outcome: TurnOutcome::Completed.into(),
                message: "found it".to_owned(),
                ..TurnEnded::default()
            }),
        ));
        assert_eq!(status(&view, "a"), StatusKind::Completed);
        view.apply(&message(4, "a", Kind::CloseRequested(CloseRequested::default())));
        assert_eq!(view.thread("a").unwrap().conditions.len(), 1);
        view.apply(&message(5, "a", Kind::ThreadClosed(ThreadClosed::default())));
        let thread = view.thread("a").unwrap();
        assert_eq!(status(&view, "a"), StatusKind::Shutdown);
        assert_eq!(
            thread.status.as_ref().unwrap().message,
            "found it",
            "the last message stays"
        );
        assert!(thread.conditions.is_empty());
        assert_eq!(thread.sequence, 5);
    }

    #[test]
    fn spawn_order_is_kept_and_unknown_threads_ignored() {
        let mut view = SessionView::default();
        view.apply(&message(1, "a", spawn(0, "")));
        view.apply(&message(2, "b", spawn(1, "a")));
        view.apply(&message(3, "unknown", Kind::TurnStarted(TurnStarted::default())));
        let ids: Vec<_> = view.threads().iter().map(|thread| thread.thread_id.as_str()).collect();
        assert_eq!(ids, ["a", "b"]);
    }

    #[test]
    fn usage_of_all_attempts_adds_up() {
        let mut view = SessionView::default();
        let tokens = |input_tokens, cost_micros| Usage {
            input_tokens,
            cost_micros,
            ..Usage::default()
        };
        let ended = |usage| {
            Kind::TurnEnded(TurnEnded {
                usage: Some(usage),
                ..TurnEnded::default()
            })
        };
        let placed = |generation| {
            Kind::ThreadPlaced(ThreadPlaced {
                runner_id: "r".to_owned(),
                generation,
            })
        };
        view.apply(&message(1, "a", spawn(1, "")));
        view.apply(&message(2, "a", placed(1)));
        view.apply(&WatchThreadsResponse {
            sequence: 0,
            message: Some(Message::Telemetry(Telemetry {
                thread_id: "a".to_owned(),
                generation: 1,
                usage: Some(tokens(8, 6)),
                ..Telemetry::default()
            })),
        });
        view.apply(&message(3, "a", ended(tokens(10, 7))));
        assert_eq!(
            view.thread("a").unwrap().usage,
            Some(tokens(10, 7)),
            "not telemetry twice"
        );
        view.apply(&message(4, "a", ended(tokens(30, 5))));
        assert_eq!(view.thread("a").unwrap().usage, Some(tokens(30, 5)), "one attempt");
        view.apply(&message(5, "a", placed(2)));
        view.apply(&message(6, "a", ended(tokens(4, 1))));
        assert_eq!(view.thread("a").unwrap().usage, Some(tokens(34, 6)), "two attempts");
    }

    #[test]
    fn conditions_end_with_their_cause() {
        let mut view = SessionView::default();
        let begins = |kind: ConditionKind| {
            Kind::ConditionChanged(ConditionChanged {
                kind: kind.into(),
                active: true,
                ..ConditionChanged::default()
            })
        };
        view.apply(&message(1, "a", spawn(1, "")));
        view.apply(&message(2, "a", begins(ConditionKind::AwaitingInput)));
        view.apply(&message(3, "a", begins(ConditionKind::Unreachable)));
        view.apply(&message(4, "a", begins(ConditionKind::Stalled)));
        assert_eq!(view.thread("a").unwrap().conditions.len(), 3);
        view.apply(&message(5, "a", Kind::InputQueued(InputQueued::default())));
        view.apply(&message(6, "a", Kind::TurnEnded(TurnEnded::default())));
        let left: Vec<_> = view
            .thread("a")
            .unwrap()
            .conditions
            .iter()
            .map(Condition::kind)
            .collect();
        assert_eq!(left, [ConditionKind::Stalled]);
    }

    #[test]
    fn telemetry_of_old_generation_is_ignored() {
        let mut view = SessionView::default();
        view.apply(&message(1, "a", spawn(1, "")));
        let mut telemetry = Telemetry {
            thread_id: "a".to_owned(),
            generation: 2,
            activity: "reading".to_owned(),
            ..Telemetry::default()
        };
        let send = |telemetry: &Telemetry| WatchThreadsResponse {
            sequence: 0,
            message: Some(Message::Telemetry(telemetry.clone())),
        };
        view.apply(&send(&telemetry));
        assert_eq!(view.thread("a").unwrap().activity, "");
        telemetry.generation = 1;
        view.apply(&send(&telemetry));
        assert_eq!(view.thread("a").unwrap().activity, "reading");
    }
}
