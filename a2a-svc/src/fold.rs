//! The tasks of a context, computed from the events of its session. The same events always give the same tasks, so the
//! state of tasks is not stored elsewhere.
//!
//! A task begins with an input that arrives while no task is open, and ends with the turn after which no input waits. A
//! turn that ends with a question leaves its task open: the next input answers it. An input that arrives while a task
//! is open belongs to that task.

use std::collections::{BTreeMap, BTreeSet};

use prost_types::Timestamp;
use troupe_proto::supervisor::v1::{
    ApprovalKind, ArtifactRecorded, ConditionKind, ContentRef, Event, TurnEnded, TurnOutcome, event::Kind,
};

use crate::pb::TaskState;

/// Maximum number of tasks of a context that are remembered.
const MAX_TASKS: usize = 1_000;
/// Maximum number of updates of a task that are remembered.
const MAX_UPDATES: usize = 4_096;
/// Maximum number of threads below the agent that a task shows.
pub(crate) const MAX_DESCENDANTS: usize = 256;

/// Returns the note that marks a canceled task. Only a note that an operator set counts, so an agent cannot cancel a
/// task.
pub(crate) fn cancel_note(number: u32) -> String {
    format!("A2A task {number} canceled by its caller")
}

/// A text. A long text is stored as content.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Text {
    /// The text, or its beginning.
    pub(crate) inline: String,
    /// The whole text, if it is longer.
    pub(crate) content: Option<ContentRef>,
}

impl Text {
    fn short(text: impl Into<String>) -> Self {
        Self {
            inline: text.into(),
            content: None,
        }
    }
}

/// An output of a task.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Output {
    /// The last message of the agent.
    Result(Text),
    /// An artifact that the agent's runner recorded.
    Recorded(Box<ArtifactRecorded>),
}

/// A change of a task.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// The task has this state, for this reason, under these conditions.
    State(TaskState, Option<Text>, Vec<ConditionKind>),
    /// The task has this output.
    Output(Output),
}

/// A change of a task with its position in the log.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Update {
    /// The sequence number of the event that caused the update.
    pub(crate) sequence: u64,
    /// The position after which a reader of this update continues. If an event causes several updates, all except the
    /// last one have the position before the event.
    pub(crate) resume: u64,
    pub(crate) time: Timestamp,
    pub(crate) change: Change,
}

/// An input of a task.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Input {
    pub(crate) number: u32,
    pub(crate) content: Option<ContentRef>,
}

/// A turn of a task.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Turn {
    pub(crate) turn: u32,
    /// The inputs that the turn consumed.
    pub(crate) inputs: Vec<u32>,
    /// The last message of the agent, once the turn has ended.
    pub(crate) message: Option<Text>,
}

/// A thread below the agent that began during a task.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Descendant {
    pub(crate) parent: String,
    pub(crate) role: String,
    /// The state of the thread's last turn.
    pub(crate) state: TaskState,
}

/// A task.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    /// The number of the task's first input.
    pub(crate) number: u32,
    /// The sequence number of the event that began the task.
    pub(crate) began: u64,
    pub(crate) inputs: Vec<Input>,
    pub(crate) turns: Vec<Turn>,
    /// The threads below the agent, by thread id.
    pub(crate) descendants: BTreeMap<String, Descendant>,
    /// The updates in order. The first one is the creation of the task.
    pub(crate) updates: Vec<Update>,
}

/// The state of a task at a position in the log.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) state: TaskState,
    pub(crate) message: Option<Text>,
    pub(crate) conditions: Vec<ConditionKind>,
    pub(crate) time: Timestamp,
    /// See [`Update::resume`].
    pub(crate) resume: u64,
}

impl Task {
    /// Returns the state after the updates up to this position in the log.
    pub(crate) fn standing_at(&self, sequence: u64) -> Standing {
        let mut standing = Standing {
            state: TaskState::Submitted,
            message: None,
            conditions: Vec::new(),
            time: Timestamp::default(),
            resume: self.began,
        };
        for update in self.updates.iter().take_while(|update| update.sequence <= sequence) {
            if let Change::State(state, message, conditions) = &update.change {
                standing.state = *state;
                standing.message.clone_from(message);
                standing.conditions.clone_from(conditions);
                standing.time = update.time;
            }
            standing.resume = update.resume;
        }
        standing
    }

    /// Returns the current state.
    pub(crate) fn standing(&self) -> Standing {
        self.standing_at(u64::MAX)
    }

    /// Returns the outputs up to this position in the log.
    pub(crate) fn outputs_at(&self, sequence: u64) -> impl Iterator<Item = &Output> {
        let updates = self
            .updates
            .iter()
            .take_while(move |update| update.sequence <= sequence);
        updates.filter_map(|update| match &update.change {
            Change::Output(output) => Some(output),
            Change::State(..) => None,
        })
    }

    /// Returns the running turn, otherwise the turn that ended last.
    pub(crate) fn last_turn(&self) -> Option<u32> {
        self.turns.last().map(|turn| turn.turn)
    }
}

/// Returns whether a task in this state never changes again.
pub(crate) const fn is_terminal(state: TaskState) -> bool {
    matches!(
        state,
        TaskState::Completed | TaskState::Failed | TaskState::Canceled | TaskState::Rejected
    )
}

/// Returns whether a task in this state waits for its caller or for an operator.
pub(crate) const fn is_interrupted(state: TaskState) -> bool {
    matches!(state, TaskState::InputRequired | TaskState::AuthRequired)
}

/// The tasks of a context.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fold {
    /// The last event that was applied.
    pub(crate) sequence: u64,
    /// The thread of the agent.
    root: String,
    tasks: BTreeMap<u32, Task>,
    /// The number of the open task.
    open: Option<u32>,
    /// Inputs of the open task that no turn has consumed.
    pending: BTreeSet<u32>,
    /// The explanations of pending approvals, by approval id.
    approvals: BTreeMap<String, String>,
    /// The question of the running turn.
    question: Option<String>,
    /// The reason of the condition that the budget is exhausted.
    budget: Option<String>,
    /// Conditions under which the agent makes no progress. Callers do not see their reasons, which can name runners.
    obstacles: BTreeSet<ConditionKind>,
    /// The number of the last input.
    last_input: u32,
}

impl Fold {
    pub(crate) fn new(root: &str) -> Self {
        Self {
            root: root.to_owned(),
            ..Self::default()
        }
    }

    pub(crate) fn task(&self, number: u32) -> Option<&Task> {
        self.tasks.get(&number)
    }

    pub(crate) fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.tasks.values()
    }

    pub(crate) fn open_task(&self) -> Option<&Task> {
        self.open.and_then(|number| self.tasks.get(&number))
    }

    /// Returns the task that an input belongs to.
    pub(crate) fn task_of_input(&self, number: u32) -> Option<&Task> {
        let at_most = self.tasks.range(..=number).rev();
        at_most
            .map(|(_, task)| task)
            .find(|task| task.inputs.iter().any(|input| input.number == number))
    }

    /// Records that all events up to this position were applied.
    pub(crate) fn reach(&mut self, sequence: u64) {
        self.sequence = self.sequence.max(sequence);
    }

    /// Applies an event. Events have to come in order; a repeated event is ignored.
    pub(crate) fn apply(&mut self, event: &Event) {
        if event.sequence <= self.sequence {
            return;
        }
        self.sequence = event.sequence;
        let time = event.time.unwrap_or_default();
        let at = At {
            sequence: event.sequence,
            time,
        };
        let Some(kind) = &event.kind else { return };
        match kind {
            Kind::ApprovalRequested(requested) => {
                let what = match requested.kind() {
                    ApprovalKind::Tool => "a tool call",
                    ApprovalKind::Spawn => "the start of another agent",
                    ApprovalKind::Edge => "a connection between agents",
                    ApprovalKind::Group => "a group of agents",
                    ApprovalKind::Unspecified => "an action",
                };
                self.approvals.insert(
                    requested.approval_id.clone(),
                    format!("waits until an operator of the agent approves {what}"),
                );
                self.show_approvals(at);
            }
            Kind::ApprovalResolved(resolved) => {
                self.approvals.remove(&resolved.approval_id);
                self.show_approvals(at);
            }
            Kind::SessionClosed(_) => self.end(at, TaskState::Canceled, Some(Text::short("the context was closed"))),
            _ if event.thread_id != self.root => self.descendant(&event.thread_id, kind),
            Kind::ThreadSpawned(spawned) if spawned.input.is_some() => self.input(at, 1, spawned.input.clone()),
            Kind::InputQueued(queued) => self.input(at, queued.number, queued.input.clone()),
            Kind::InputDelivered(delivered) => {
                self.pending.remove(&delivered.number);
                let task = self.open.and_then(|open| self.tasks.get_mut(&open));
                let turn = task.and_then(|task| task.turns.iter_mut().find(|turn| turn.turn == delivered.turn));
                if let Some(turn) = turn {
                    turn.inputs.push(delivered.number);
                }
            }
            Kind::TurnDispatched(dispatched) => {
                let mine = dispatched.inputs.iter().any(|number| self.pending.contains(number));
                for number in &dispatched.inputs {
                    self.pending.remove(number);
                }
                if mine && let Some(task) = self.open.and_then(|open| self.tasks.get_mut(&open)) {
                    task.turns.push(Turn {
                        turn: dispatched.turn,
                        inputs: dispatched.inputs.clone(),
                        message: None,
                    });
                }
            }
            Kind::TurnStarted(started) if self.is_of_open_task(started.turn) => {
                self.set(at, TaskState::Working, None);
                self.show_approvals(at);
            }
            Kind::ConditionChanged(changed) => match changed.kind() {
                ConditionKind::AwaitingInput => self.question = changed.active.then(|| changed.reason.clone()),
                ConditionKind::BudgetExhausted => self.budget = changed.active.then(|| changed.reason.clone()),
                kind @ (ConditionKind::Stalled | ConditionKind::Unreachable) => {
                    match changed.active {
                        true => self.obstacles.insert(kind),
                        false => self.obstacles.remove(&kind),
                    };
                    self.show_obstacles(at);
                }
                // No event has the first two conditions, because the supervisor computes them from the present state.
                ConditionKind::Closing
                | ConditionKind::NoRunner
                | ConditionKind::Unspecified
                | ConditionKind::AwaitingToolApproval
                | ConditionKind::PolicyGap
                | ConditionKind::ContextLost => {}
            },
            Kind::TurnEnded(ended) => self.turn_ended(at, ended),
            // Callers must not see prompts, which belong to the operator.
            Kind::ArtifactRecorded(artifact) if artifact.kind != "prompt" && self.is_of_open_task(artifact.turn) => {
                self.push(at, Change::Output(Output::Recorded(Box::new(artifact.clone()))));
            }
            Kind::NoteSet(note) => {
                let open = self.open.filter(|number| note.thread_note == cancel_note(*number));
                if open.is_some() && event.actor.starts_with("operator:") {
                    self.end(at, TaskState::Canceled, Some(Text::short("canceled by the caller")));
                }
            }
            Kind::ThreadClosed(closed) => {
                let reason = match closed.reason.is_empty() {
                    true => String::from("the context was closed"),
                    false => closed.reason.clone(),
                };
                self.end(at, TaskState::Canceled, Some(Text::short(reason)));
            }
            _ => {}
        }
    }

    fn input(&mut self, at: At, number: u32, content: Option<ContentRef>) {
        if number <= self.last_input {
            return;
        }
        self.last_input = number;
        let input = Input { number, content };
        self.question = None;
        self.pending.insert(number);
        if let Some(task) = self.open.and_then(|open| self.tasks.get_mut(&open)) {
            task.inputs.push(input);
            if task.standing().state == TaskState::InputRequired {
                self.set(at, TaskState::Submitted, None);
            }
            return;
        }
        while self.tasks.len() >= MAX_TASKS {
            self.tasks.pop_first();
        }
        self.pending.retain(|pending| *pending == number);
        self.tasks.insert(
            number,
            Task {
                number,
                began: at.sequence,
                inputs: vec![input],
                turns: Vec::new(),
                descendants: BTreeMap::new(),
                updates: Vec::new(),
            },
        );
        self.open = Some(number);
        self.set(at, TaskState::Submitted, None);
    }

    fn turn_ended(&mut self, at: At, ended: &TurnEnded) {
        // The end of turn 0 means that no turn was started for the pending inputs. They are dropped.
        let never_started = ended.turn == 0 && !self.pending.is_empty();
        if !never_started && !self.is_of_open_task(ended.turn) {
            return;
        }
        if never_started {
            self.pending.clear();
        }
        let message = Text {
            inline: ended.message.clone(),
            content: ended.content.clone(),
        };
        let task = self.open.and_then(|open| self.tasks.get_mut(&open));
        let turn = task.and_then(|task| task.turns.iter_mut().rfind(|turn| turn.turn == ended.turn));
        if let Some(turn) = turn {
            turn.message = Some(message.clone());
        }
        if ended.result_repair {
            return;
        }
        let reason = |fallback: &str| match (&self.budget, ended.reason.as_str()) {
            (Some(budget), _) => format!("the budget is spent: {budget}"),
            (None, "") => fallback.to_owned(),
            (None, reason) => reason.to_owned(),
        };
        match ended.outcome() {
            _ if !self.pending.is_empty() => self.set(at, TaskState::Submitted, None),
            TurnOutcome::Completed => match self.question.clone() {
                Some(question) => self.set(at, TaskState::InputRequired, Some(Text::short(question))),
                None => {
                    if !(message.inline.is_empty() && message.content.is_none()) {
                        self.push(at, Change::Output(Output::Result(message)));
                    }
                    self.end(at, TaskState::Completed, None);
                }
            },
            TurnOutcome::Errored => self.end(at, TaskState::Failed, Some(message)),
            TurnOutcome::Interrupted if self.budget.is_some() => {
                let why = Text::short(reason("the budget is spent"));
                self.end(at, TaskState::Failed, Some(why));
            }
            TurnOutcome::Interrupted | TurnOutcome::Unspecified => {
                let why = Text::short(reason("interrupted"));
                self.end(at, TaskState::Canceled, Some(why));
            }
        }
    }

    fn is_of_open_task(&self, turn: u32) -> bool {
        self.open_task()
            .is_some_and(|task| task.turns.iter().any(|own| own.turn == turn))
    }

    /// Updates the state of the open task after a change of the pending approvals.
    fn show_approvals(&mut self, at: At) {
        let Some(state) = self.open_task().map(|task| task.standing().state) else {
            return;
        };
        match (self.approvals.values().next().cloned(), state) {
            (Some(why), TaskState::Working | TaskState::Submitted) => {
                self.set(at, TaskState::AuthRequired, Some(Text::short(why)));
            }
            (None, TaskState::AuthRequired) => self.set(at, TaskState::Working, None),
            _ => {}
        }
    }

    /// Adds an update with the current conditions to the open task if the task is submitted or working.
    fn show_obstacles(&mut self, at: At) {
        if let Some(state @ (TaskState::Submitted | TaskState::Working)) =
            self.open_task().map(|task| task.standing().state)
        {
            self.set(at, state, None);
        }
    }

    /// Applies an event of a thread below the agent.
    fn descendant(&mut self, thread: &str, kind: &Kind) {
        let Some(task) = self.open.and_then(|open| self.tasks.get_mut(&open)) else {
            return;
        };
        let state = match kind {
            Kind::ThreadSpawned(spawned) if task.descendants.len() < MAX_DESCENDANTS => {
                let descendant = Descendant {
                    parent: spawned.parent_thread_id.clone(),
                    role: spawned.agent_type.clone(),
                    state: TaskState::Submitted,
                };
                task.descendants.insert(thread.to_owned(), descendant);
                return;
            }
            Kind::TurnStarted(_) => TaskState::Working,
            Kind::TurnEnded(ended) => match ended.outcome() {
                TurnOutcome::Completed => TaskState::Completed,
                TurnOutcome::Errored => TaskState::Failed,
                TurnOutcome::Interrupted | TurnOutcome::Unspecified => TaskState::Canceled,
            },
            _ => return,
        };
        if let Some(descendant) = task.descendants.get_mut(thread) {
            descendant.state = state;
        }
    }

    /// Ends the open task.
    fn end(&mut self, at: At, state: TaskState, message: Option<Text>) {
        self.set(at, state, message);
        self.open = None;
        self.pending.clear();
    }

    fn set(&mut self, at: At, state: TaskState, message: Option<Text>) {
        let (message, conditions) = match state {
            TaskState::Submitted | TaskState::Working => (
                message.or_else(|| self.obstacle()),
                self.obstacles.iter().copied().collect(),
            ),
            _ => (message, Vec::new()),
        };
        let is_new = self.open_task().is_some_and(|task| {
            let standing = task.standing();
            task.updates.is_empty()
                || (standing.state, &standing.message, &standing.conditions) != (state, &message, &conditions)
        });
        if is_new {
            self.push(at, Change::State(state, message, conditions));
        }
    }

    fn obstacle(&self) -> Option<Text> {
        let text = match self.obstacles.first()? {
            ConditionKind::Unreachable => "the machine of the agent is not reachable",
            _ => "the agent makes no progress",
        };
        Some(Text::short(text))
    }

    fn push(&mut self, at: At, change: Change) {
        let Some(task) = self.open.and_then(|open| self.tasks.get_mut(&open)) else {
            return;
        };
        if let Some(last) = task.updates.last_mut()
            && last.sequence == at.sequence
        {
            last.resume = at.sequence.saturating_sub(1);
        }
        if task.updates.len() >= MAX_UPDATES {
            task.updates.remove(0);
        }
        task.updates.push(Update {
            sequence: at.sequence,
            resume: at.sequence,
            time: at.time,
            change,
        });
    }
}

/// The position and the time of an event.
#[derive(Clone, Copy)]
struct At {
    sequence: u64,
    time: Timestamp,
}

/// Returns the name of a condition without its prefix, such as `STALLED`.
pub(crate) fn condition_name(kind: ConditionKind) -> &'static str {
    let name = kind.as_str_name();
    name.strip_prefix("CONDITION_KIND_").unwrap_or(name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;
    use troupe_proto::supervisor::v1::{
        ApprovalRequested, ApprovalResolved, ConditionChanged, InputDelivered, InputQueued, NoteSet, ThreadSpawned,
        TurnDispatched, TurnStarted,
    };

    use super::*;

    struct Log {
        fold: Fold,
        sequence: u64,
    }

    impl Log {
        fn new() -> Self {
            let mut log = Self {
                fold: Fold::new("root"),
                sequence: 0,
            };
            log.add(Kind::ThreadSpawned(Box::new(ThreadSpawned {
                input: Some(ContentRef::default()),
                ..ThreadSpawned::default()
            })));
            log
        }

        fn add(&mut self, kind: Kind) {
            self.sequence += 1;
            self.fold.apply(&Event {
                thread_id: String::from("root"),
                sequence: self.sequence,
                actor: String::from("operator:local"),
                kind: Some(kind),
                ..Event::default()
            });
        }

        fn input(&mut self, number: u32) {
            self.add(Kind::InputQueued(InputQueued {
                number,
                ..InputQueued::default()
            }));
        }

        fn start(&mut self, turn: u32, inputs: &[u32]) {
            self.add(Kind::TurnDispatched(TurnDispatched {
                turn,
                inputs: inputs.to_vec(),
                ..TurnDispatched::default()
            }));
            self.add(Kind::TurnStarted(TurnStarted {
                turn,
                ..TurnStarted::default()
            }));
        }

        fn end(&mut self, turn: u32, outcome: TurnOutcome) {
            self.add(Kind::TurnEnded(TurnEnded {
                turn,
                outcome: outcome.into(),
                message: String::from("done"),
                ..TurnEnded::default()
            }));
        }

        fn ask(&mut self, active: bool) {
            self.add(Kind::ConditionChanged(ConditionChanged {
                kind: ConditionKind::AwaitingInput.into(),
                active,
                reason: String::from("which one?"),
            }));
        }

        fn state(&self, number: u32) -> TaskState {
            self.fold.task(number).unwrap().standing().state
        }
    }

    #[test]
    fn question_keeps_task_open_over_turns() {
        let mut log = Log::new();
        log.start(1, &[1]);
        log.ask(true);
        assert_eq!(log.state(1), TaskState::Working);
        log.end(1, TurnOutcome::Completed);
        assert_eq!(log.state(1), TaskState::InputRequired);
        log.ask(false);
        log.input(2);
        assert_eq!(log.state(1), TaskState::Submitted);
        log.start(2, &[2]);
        log.end(2, TurnOutcome::Completed);
        assert_eq!(log.state(1), TaskState::Completed);
        assert!(log.fold.task(2).is_none());
        assert_eq!(log.fold.task_of_input(2).unwrap().number, 1);
    }

    #[test]
    fn input_during_task_belongs_to_task() {
        let mut log = Log::new();
        log.start(1, &[1]);
        log.input(2);
        log.end(1, TurnOutcome::Completed);
        assert_eq!(log.state(1), TaskState::Submitted, "input 2 waits");
        log.start(2, &[2]);
        log.input(3);
        log.add(Kind::InputDelivered(InputDelivered {
            number: 3,
            turn: 2,
            ..InputDelivered::default()
        }));
        log.end(2, TurnOutcome::Completed);
        assert_eq!(log.state(1), TaskState::Completed);
    }

    #[test]
    fn condition_of_agent_explains_working_task() {
        let mut log = Log::new();
        log.start(1, &[1]);
        let condition = |active| {
            Kind::ConditionChanged(ConditionChanged {
                kind: ConditionKind::Unreachable.into(),
                active,
                reason: String::from("runner r-1 is not reachable"),
            })
        };
        log.add(condition(true));
        let standing = log.fold.task(1).unwrap().standing();
        assert_eq!(standing.state, TaskState::Working);
        assert_eq!(standing.conditions, [ConditionKind::Unreachable]);
        assert_eq!(
            standing.message.unwrap().inline,
            "the machine of the agent is not reachable"
        );
        log.add(condition(false));
        let standing = log.fold.task(1).unwrap().standing();
        assert_eq!((standing.message, standing.conditions), (None, Vec::new()));
        log.add(condition(true));
        log.end(1, TurnOutcome::Completed);
        assert_eq!(log.fold.task(1).unwrap().standing().conditions, []);
    }

    #[test]
    fn interrupted_turn_cancels_and_spent_budget_fails() {
        let mut log = Log::new();
        log.start(1, &[1]);
        log.end(1, TurnOutcome::Interrupted);
        assert_eq!(log.state(1), TaskState::Canceled);
        log.input(2);
        log.start(2, &[2]);
        log.add(Kind::ConditionChanged(ConditionChanged {
            kind: ConditionKind::BudgetExhausted.into(),
            active: true,
            reason: String::from("tokens"),
        }));
        log.end(2, TurnOutcome::Interrupted);
        assert_eq!(log.state(2), TaskState::Failed);
    }

    #[test]
    fn earlier_states_can_be_read() {
        let mut log = Log::new();
        log.start(1, &[1]);
        log.end(1, TurnOutcome::Completed);
        let task = log.fold.task(1).unwrap();
        assert_eq!(task.standing_at(1).state, TaskState::Submitted);
        assert_eq!(task.outputs_at(1).count(), 0);
        assert_eq!(task.standing_at(3).state, TaskState::Working);
    }

    /// Returns arbitrary events of a thread in any order, including orders that the supervisor never produces.
    fn kinds() -> impl Strategy<Value = Vec<Kind>> {
        let number = 1..6_u32;
        let kind = prop_oneof![
            number.clone().prop_map(|number| Kind::InputQueued(InputQueued {
                number,
                ..InputQueued::default()
            })),
            (number.clone(), number.clone()).prop_map(|(turn, input)| Kind::TurnDispatched(TurnDispatched {
                turn,
                inputs: vec![input],
                ..TurnDispatched::default()
            })),
            number.clone().prop_map(|turn| Kind::TurnStarted(TurnStarted {
                turn,
                ..TurnStarted::default()
            })),
            (0..6_u32, 1..4_i32).prop_map(|(turn, outcome)| Kind::TurnEnded(TurnEnded {
                turn,
                outcome,
                message: String::from("done"),
                ..TurnEnded::default()
            })),
            any::<bool>().prop_map(|active| Kind::ConditionChanged(ConditionChanged {
                kind: ConditionKind::AwaitingInput.into(),
                active,
                reason: String::from("which one?"),
            })),
            number.clone().prop_map(|id| Kind::ApprovalRequested(ApprovalRequested {
                approval_id: id.to_string(),
                ..ApprovalRequested::default()
            })),
            number.clone().prop_map(|id| Kind::ApprovalResolved(ApprovalResolved {
                approval_id: id.to_string(),
                ..ApprovalResolved::default()
            })),
            number.prop_map(|task| Kind::NoteSet(NoteSet {
                thread_note: cancel_note(task),
            })),
        ];
        prop::collection::vec(kind, 0..40)
    }

    proptest! {
        #[test]
        fn tasks_are_consistent_for_any_events(kinds in kinds()) {
            let mut log = Log::new();
            let mut ended: BTreeMap<u32, usize> = BTreeMap::new();
            for kind in kinds {
                log.add(kind);
                let open = log.fold.open_task().map(|task| task.number);
                for task in log.fold.tasks() {
                    // A task that has ended never changes, and only one task is open.
                    let updates = task.updates.len();
                    match is_terminal(task.standing().state) {
                        true => prop_assert_eq!(*ended.entry(task.number).or_insert(updates), updates),
                        false => prop_assert_eq!(open, Some(task.number)),
                    }
                }
            }
            for task in log.fold.tasks() {
                for (index, update) in task.updates.iter().enumerate() {
                    // A reader that continues after an update receives all later ones.
                    let next = task.updates.iter().position(|other| other.sequence > update.resume);
                    prop_assert!(next.is_none_or(|next| next <= index + 1));
                }
            }
        }
    }
}
