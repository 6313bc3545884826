//! A session and its log. Commands are carried out as in the service: decide, record, fold, and add the follow-up
//! events. The [`laws`] are checked for every command.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use supervisor_core::{
    command::{Command, Dispatch, Report, Spawn},
    content::ContentRef,
    decide::{decide, follow_ups},
    effect::{PendingEffect, pending_effect},
    event::{
        ApprovalKind, CloseCause, ConditionKind, Dialect, Edge, Event, OutputDigests, PromptExtent, Recorded, Role,
        Scope, SessionEvent, SettingsChange, Spawned, TemplateSource, ThreadEvent,
    },
    evolve::{evolve, open},
    ids::{ApprovalId, Digest, ReportSequence, RunnerId, Sequence, SessionId, ThreadId, Turn, WaitId},
    principal::Caller,
    rejection::Rejection,
    rules::{
        approval::APPROVAL_TIMEOUT,
        cascade::{CASCADE_DEADLINE, next_ready, ready_leaves},
    },
    settings::{OnLimit, Sandbox, Settings, SlotRelease, Urgency, Usage},
    state::{session::Session, thread::Thread, wait::Wait},
    status::{Settled, StatusKind},
    time::UnixMillis,
};
use supervisor_log::codec::{decode_snapshot, encode_snapshot};
use tool_policy::{Layer, MatchMode};
use uuid::Uuid;

use crate::{laws, samples};

/// The events of a command without an effect.
pub const NOTHING: [&str; 0] = [];

/// The time at which the sessions of these tests are opened.
const START: u64 = 1_000_000;

/// A session, its log, and a clock that advances with every command.
#[derive(Clone, Debug)]
pub struct World {
    pub session: Session,
    pub log: Vec<Recorded>,
    /// Additional tool names for the comparison of permissions.
    pub tools: Vec<String>,
    /// Whether the laws are checked.
    pub lawful: bool,
    now: u64,
    ids: u128,
}

// ---- creation ----

impl World {
    /// Opens a session with this root.
    pub fn open(settings: Settings, root: Spawned) -> Self {
        let opened = recorded(1, START, Event::Session(SessionEvent::Opened(Box::new(settings))));
        let session = open(SessionId::from_uuid(Uuid::from_u128(7)), &opened).expect("the event opens a session");
        let mut world = Self {
            session,
            log: vec![opened],
            tools: Vec::new(),
            lawful: true,
            now: START,
            ids: 0,
        };
        let id = world.new_id();
        world.append(Event::Thread(id, ThreadEvent::Spawned(Arc::new(root))));
        world
    }

    /// Opens a session with changed settings, whose client executes the root. Returns the root too.
    pub fn with_settings(change: impl FnOnce(&mut Settings)) -> (Self, ThreadId) {
        let mut settings = settings();
        change(&mut settings);
        let world = Self::open(settings, client_root());
        let root = world.root();
        (world, root)
    }

    /// Like [`Self::with_settings`], with `max_threads` slots.
    pub fn with_slots(max_threads: u32) -> (Self, ThreadId) {
        Self::with_settings(|settings| settings.limits.max_threads = max_threads)
    }

    /// Opens a session with one slot, which a settled thread keeps until it is closed.
    pub fn with_one_kept_slot() -> (Self, ThreadId) {
        Self::with_settings(|settings| {
            settings.limits.max_threads = 1;
            settings.slot_release = SlotRelease::Close;
        })
    }

    /// Opens a session with one slot, and a thread in this status. The thread has the slot if its status needs one.
    pub fn with_thread_in(kind: StatusKind) -> (Self, ThreadId) {
        let (mut world, root) = Self::with_slots(1);
        let id = match kind {
            StatusKind::Queued => {
                world.spawn(root);
                world.enqueue(root)
            }
            StatusKind::AwaitingApproval => {
                let spawned = Spawned {
                    parent: Some(root),
                    depth: 1,
                    first_status: kind,
                    ..role("worker")
                };
                let id = world.new_id();
                world.append(Event::Thread(id, ThreadEvent::Spawned(Arc::new(spawned))));
                world.ask(id, ApprovalKind::Spawn, None);
                id
            }
            StatusKind::PendingInit => world.spawn(root),
            StatusKind::Running => world.spawn_running(root),
            StatusKind::Completed | StatusKind::Errored | StatusKind::Interrupted => {
                let id = world.spawn_running(root);
                world.end(id, settled(kind));
                id
            }
            StatusKind::Shutdown => {
                let id = world.spawn(root);
                world.close(id);
                id
            }
        };
        assert_eq!(world.status(id), kind);
        (world, id)
    }

    /// Returns the state after a log, encoded as a snapshot and decoded again.
    pub fn replay(log: &[Recorded]) -> Session {
        let (first, rest) = log.split_first().expect("a log has a first event");
        let mut session = open(SessionId::from_uuid(Uuid::from_u128(7)), first).expect("the event opens a session");
        for recorded in rest {
            evolve(&mut session, recorded);
        }
        let restored = decode_snapshot(session.id, session.sequence, &encode_snapshot(&session));
        let restored = restored.expect("a snapshot can be read");
        assert!(restored == session, "the snapshot changes the state");
        restored
    }

    /// Lets time pass without events.
    pub fn pass(&mut self, time: Duration) {
        self.now += u64::try_from(time.as_millis()).expect("a test waits for minutes");
    }

    fn new_id(&mut self) -> ThreadId {
        self.ids += 1;
        thread_id(self.ids)
    }
}

// ---- execution ----

impl World {
    /// Carries out a command and returns the number of events that the command decided itself. Automatic events follow
    /// them.
    pub fn carry_out(&mut self, command: &Command) -> Result<usize, Rejection> {
        self.now += 7;
        let before = self.session.clone();
        let from = self.log.len();
        let decided = self.decide_and_fold(command);
        if self.lawful {
            let appended = &self.log[from..];
            laws::of_append(&before, appended, &self.session, &self.tools);
            laws::of_state(&self.session);
            match &decided {
                Ok(decided) => {
                    laws::of_authority(&self.session, command, &appended[..*decided]);
                    laws::of_gate(&before, command, &appended[..*decided]);
                }
                Err(_) => assert!(
                    appended.is_empty() && self.session == before,
                    "a rejection changes nothing"
                ),
            }
            if laws::is_void(&before, command) {
                assert!(appended.is_empty(), "{command:?} is void");
            }
        }
        decided
    }

    fn decide_and_fold(&mut self, command: &Command) -> Result<usize, Rejection> {
        let events = decide(&self.session, command, UnixMillis::new(self.now))?;
        let decided = events.len();
        if decided > 0 {
            events.into_iter().for_each(|event| self.append(event));
            self.follow_up();
        }
        Ok(decided)
    }

    fn follow_up(&mut self) {
        loop {
            let events = follow_ups(&self.session);
            if events.is_empty() {
                return;
            }
            events.into_iter().for_each(|event| self.append(event));
        }
    }

    /// Records an event without a command and without follow-up events.
    pub fn append(&mut self, event: Event) {
        let time = self.now.max(self.session.updated.get());
        let recorded = recorded(self.session.sequence.next().get(), time, event);
        evolve(&mut self.session, &recorded);
        self.log.push(recorded);
    }

    /// Requests an approval for a thread.
    pub fn ask(&mut self, thread: ThreadId, kind: ApprovalKind, edge: Option<Edge>) -> ApprovalId {
        let approval = self.new_approval_id();
        let requested = ThreadEvent::ApprovalRequested {
            approval,
            kind,
            subject: String::from("something"),
            deadline: Some(UnixMillis::new(self.now).plus(APPROVAL_TIMEOUT)),
            edge,
            call: None,
        };
        self.append(Event::Thread(thread, requested));
        approval
    }

    pub fn new_approval_id(&mut self) -> ApprovalId {
        ApprovalId::from_uuid(self.new_id().as_uuid())
    }

    /// Begins a wait of a thread for others, as WaitAgents does.
    pub fn wait(&mut self, id: ThreadId, awaited: &[ThreadId]) -> WaitId {
        let wait = WaitId::from_uuid(self.new_id().as_uuid());
        let generation = self.thread(id).generation;
        let awaited = Arc::new(awaited.iter().copied().collect());
        self.session.waits.begin(wait, Wait::new(id, generation, awaited));
        self.follow_up();
        wait
    }

    /// Ends a wait.
    pub fn end_wait(&mut self, wait: WaitId) {
        assert!(self.session.waits.end(wait).is_some(), "the wait exists");
        self.follow_up();
    }

    /// Changes settings as UpdateSession does.
    pub fn update(&mut self, change: impl FnOnce(&mut SettingsChange)) {
        let change = changed(change);
        self.append(Event::Session(SessionEvent::Updated(Box::new(change))));
        self.follow_up();
    }

    pub fn pause(&mut self, paused: bool) {
        self.update(|change| change.paused = Some(paused));
    }

    /// Carries out a command that must not be rejected. Returns the names of all resulting events.
    pub fn run(&mut self, command: &Command) -> Vec<&'static str> {
        let from = self.log.len();
        if let Err(rejection) = self.carry_out(command) {
            panic!("{command:?} was refused: {rejection}");
        }
        self.log[from..].iter().map(|recorded| name(&recorded.event)).collect()
    }

    /// Carries out a command that must be rejected. Returns the text of the rejection.
    pub fn rejection(&mut self, command: &Command) -> String {
        match self.carry_out(command) {
            Ok(decided) => panic!("{command:?} was not refused; it decided {decided} events"),
            Err(rejection) => rejection.to_string(),
        }
    }
}

// ---- queries ----

impl World {
    pub fn root(&self) -> ThreadId {
        self.session.root_id().expect("a session has a root")
    }

    pub fn thread(&self, id: ThreadId) -> &Thread {
        self.session.thread(id).expect("the thread exists")
    }

    pub fn status(&self, id: ThreadId) -> StatusKind {
        self.thread(id).status.kind()
    }

    pub fn nth(&self, number: u8) -> &Thread {
        let number = usize::from(number) % self.session.total();
        self.session
            .in_spawn_order()
            .nth(number)
            .expect("the number is below the total")
    }

    /// Returns the thread as a caller with a valid token.
    pub fn caller(&self, id: ThreadId) -> Caller {
        Caller::Thread {
            id,
            generation: self.thread(id).generation,
        }
    }

    pub fn effect(&self, id: ThreadId) -> Option<PendingEffect> {
        pending_effect(&self.session, id)
    }

    pub fn has_condition(&self, id: ThreadId, kind: ConditionKind) -> bool {
        self.thread(id).conditions.contains_key(&kind)
    }

    /// Returns the numbers of the inputs that wait for a turn.
    pub fn waiting_inputs(&self, id: ThreadId) -> Vec<u32> {
        let inputs = &self.thread(id).pending_inputs;
        inputs.iter().map(|input| input.number.get()).collect()
    }
}

// ---- commands ----

impl World {
    /// Returns a spawn by the parent itself, which a test can change.
    pub fn wanted_by(&mut self, parent: ThreadId) -> Spawn {
        let caller = self.caller(parent);
        Spawn {
            caller,
            ..self.wanted(parent)
        }
    }

    /// Returns a spawn by an operator, which a test can change.
    pub fn wanted(&mut self, parent: ThreadId) -> Spawn {
        Spawn {
            caller: operator(),
            id: self.new_id(),
            spawned: Spawned {
                parent: Some(parent),
                input: Some(text("do it")),
                ..role("worker")
            },
            narrowing: None,
            role_layers: Arc::default(),
            grant_list: Vec::new(),
            on_limit: OnLimit::Refuse,
            approval: self.new_approval_id(),
        }
    }

    pub fn spawn(&mut self, parent: ThreadId) -> ThreadId {
        let spawn = self.wanted(parent);
        self.spawn_as(spawn)
    }

    /// Spawns a thread as its parent does.
    pub fn spawn_by(&mut self, parent: ThreadId) -> ThreadId {
        let spawn = self.wanted_by(parent);
        self.spawn_as(spawn)
    }

    pub fn spawn_as(&mut self, spawn: Spawn) -> ThreadId {
        let id = spawn.id;
        self.run(&spawning(spawn));
        id
    }

    /// Spawns a thread as an operator does, with a changed spawn.
    pub fn spawn_with(&mut self, parent: ThreadId, change: impl FnOnce(&mut Spawn)) -> ThreadId {
        let mut spawn = self.wanted(parent);
        change(&mut spawn);
        self.spawn_as(spawn)
    }

    /// Spawns a thread that waits for a slot.
    pub fn enqueue(&mut self, parent: ThreadId) -> ThreadId {
        let id = self.spawn_with(parent, |spawn| spawn.on_limit = OnLimit::Queue);
        assert_eq!(self.status(id), StatusKind::Queued);
        id
    }

    pub fn spawn_running(&mut self, parent: ThreadId) -> ThreadId {
        let id = self.spawn(parent);
        self.begin(id);
        id
    }

    /// Dispatches the pending turn to the thread's last runner, or to one named `r0`.
    pub fn dispatch(&mut self, id: ThreadId) {
        let last = self.thread(id).runner.clone();
        let dispatch = self.dispatch_to(id, &last.unwrap_or_else(|| RunnerId::new("r0")));
        let events = self.run(&dispatching(dispatch));
        assert_eq!(events.last(), Some(&"TurnDispatched"));
    }

    /// Returns the dispatch of the pending turn as the service builds it.
    pub fn dispatch_to(&self, id: ThreadId, runner: &RunnerId) -> Dispatch {
        let thread = self.thread(id);
        Dispatch {
            thread: id,
            runner: runner.clone(),
            generation: if thread.holder() == Some(runner) {
                thread.generation
            } else {
                thread.next_attempt()
            },
            inputs: thread.pending_inputs.iter().map(|input| input.number).collect(),
            blocks: Vec::new(),
            whole: None,
            extent: PromptExtent::Full,
            mail_up_to: thread.mail.newest().unwrap_or(Sequence::ZERO),
        }
    }

    /// Dispatches the pending turn and starts it.
    pub fn begin(&mut self, id: ThreadId) {
        self.dispatch(id);
        let turn = self.thread(id).turn.number();
        assert_eq!(self.report(id, Report::TurnStarted { turn }), ["TurnStarted"]);
    }

    /// Gives a settled thread input and starts its next turn.
    pub fn next_turn(&mut self, id: ThreadId) {
        self.run(&send(operator(), id));
        self.begin(id);
    }

    /// Performs the next step of a thread's turn: dispatch, start or end. Returns whether there was one.
    pub fn advance(&mut self, id: ThreadId) -> bool {
        match self.effect(id) {
            Some(PendingEffect::Turn { .. }) => self.dispatch(id),
            Some(PendingEffect::Start { turn, .. }) => {
                self.report(id, Report::TurnStarted { turn });
            }
            Some(PendingEffect::Interrupt { turn, .. }) => {
                self.report(id, ended(turn.get(), settled(StatusKind::Interrupted)));
            }
            Some(PendingEffect::Steer { .. }) | None if self.thread(id).runs_turn() => {
                self.end(id, settled(StatusKind::Completed));
            }
            Some(PendingEffect::Steer { .. } | PendingEffect::Stop { .. } | PendingEffect::Close) | None => {
                return false;
            }
        }
        true
    }

    /// Ends the present turn.
    pub fn end(&mut self, id: ThreadId, outcome: Settled) -> Vec<&'static str> {
        let turn = self.thread(id).turn.number();
        self.report(id, ended(turn.get(), outcome))
    }

    /// Carries out a new report of the present attempt.
    pub fn report(&mut self, id: ThreadId, report: Report) -> Vec<&'static str> {
        self.run(&self.says(id, report))
    }

    /// Returns the next report of the present attempt's runner.
    pub fn says(&self, id: ThreadId, report: Report) -> Command {
        let thread = self.thread(id);
        Command::Report {
            thread: id,
            generation: thread.generation,
            sequence: ReportSequence::new(thread.last_report.get() + 1),
            report,
        }
    }

    pub fn lose(&mut self, id: ThreadId) -> Vec<&'static str> {
        self.run(&self.loss(id))
    }

    /// Returns the command for the loss of the present attempt's runner.
    pub fn loss(&self, id: ThreadId) -> Command {
        Command::LoseRunner {
            thread: id,
            generation: self.thread(id).generation,
            reason: String::from("runner r0 was lost"),
        }
    }

    /// Returns the command that sets or ends a condition of the present attempt.
    pub fn condition(&self, id: ThreadId, kind: ConditionKind, active: bool) -> Command {
        Command::SetCondition {
            thread: id,
            generation: self.thread(id).generation,
            kind,
            active,
            reason: String::from("so it is"),
        }
    }

    /// Closes a subtree completely.
    pub fn close(&mut self, id: ThreadId) {
        self.run(&close(operator(), id));
        self.wind_down();
    }

    /// Performs the pending effects under all fences until none is left: the runners stop the requested programs.
    /// Threads are selected as in the service: first the ready leaves, then the parents of closed threads.
    pub fn wind_down(&mut self) {
        let tops: Vec<ThreadId> = self.session.fenced().map(|(id, _)| id).collect();
        let mut work: VecDeque<ThreadId> = tops.iter().flat_map(|top| ready_leaves(&self.session, *top)).collect();
        while let Some(id) = work.pop_front() {
            if let Some(command) = self.stop(id) {
                self.run(&command);
                assert_eq!(self.status(id), StatusKind::Shutdown, "nothing blocks the close");
                work.extend(next_ready(&self.session, id));
            }
        }
        for top in tops {
            for thread in self.session.subtree(top) {
                assert_eq!(
                    thread.status.kind(),
                    StatusKind::Shutdown,
                    "{} was left open",
                    thread.id
                );
            }
        }
        assert_eq!(self.session.fenced().count(), 0);
    }

    /// Returns the command that lets a fenced thread close: the report of its runner, or FinishClose without a runner.
    pub fn stop(&self, id: ThreadId) -> Option<Command> {
        match self.effect(id)? {
            PendingEffect::Stop { .. } => Some(self.says(id, stopped())),
            PendingEffect::Close => Some(Command::FinishClose {
                thread: id,
                forced: false,
            }),
            PendingEffect::Turn { .. }
            | PendingEffect::Start { .. }
            | PendingEffect::Interrupt { .. }
            | PendingEffect::Steer { .. } => None,
        }
    }
}

pub fn spawning(spawn: Spawn) -> Command {
    Command::Spawn(Box::new(spawn))
}

pub fn dispatching(dispatch: Dispatch) -> Command {
    Command::Dispatch(Box::new(dispatch))
}

pub fn send(caller: Caller, target: ThreadId) -> Command {
    send_with(caller, target, Urgency::Wait, OnLimit::Refuse)
}

pub fn send_with(caller: Caller, target: ThreadId, urgency: Urgency, on_limit: OnLimit) -> Command {
    Command::SendInput {
        caller,
        target,
        input: text("and this"),
        urgency,
        on_limit,
        result_repairs: None,
    }
}

pub fn interrupt(caller: Caller, target: ThreadId) -> Command {
    Command::Interrupt {
        caller,
        target,
        turn: None,
        only_this: false,
        reason: String::from("enough"),
    }
}

pub fn close(caller: Caller, target: ThreadId) -> Command {
    Command::Close {
        caller,
        target,
        reason: String::from("no longer needed"),
        cause: CloseCause::Close,
        within: CASCADE_DEADLINE,
        policy: None,
    }
}

pub fn resume(caller: Caller, target: ThreadId) -> Command {
    Command::Resume { caller, target }
}

pub fn decision(approval: ApprovalId, grant: bool) -> Command {
    Command::ResolveApproval {
        approval,
        grant,
        by: operator().actor(),
        reason: String::from("I said so"),
    }
}

pub fn note(caller: Caller, target: ThreadId, note: &str) -> Command {
    Command::SetNote {
        caller,
        target,
        note: note.to_owned(),
    }
}

// ---- texts of rejections ----

pub const OUTSIDE: &str = "Not permitted to act on agents outside your subtree.";
pub const STALE_TOKEN: &str = "missing, malformed or stale token; send \"authorization: Bearer TOKEN\"";
pub const PAUSED: &str = "the session is paused; resume it with UpdateSession before spawning or sending input";
pub const TOO_DEEP: &str = "Agent depth limit reached. Solve the task yourself.";
pub const NO_SLOT_OF_ONE: &str = "agent thread limit reached (max 1)";

pub fn not_found(id: ThreadId) -> String {
    format!("agent with id {id} not found")
}

pub fn is_closed(id: ThreadId) -> String {
    format!("agent with id {id} is closed")
}

pub fn is_closing(id: ThreadId) -> String {
    format!("agent with id {id} is being closed; nothing new can start in it")
}

pub fn no_tool(tool: &str) -> String {
    format!("tool \"{tool}\" is not allowed for agent_type \"worker\"")
}

// ---- values ----

pub fn operator() -> Caller {
    Caller::Operator {
        name: String::from("ada"),
    }
}

/// Returns an id. The order of ids differs from the spawn order, so that code cannot confuse the two.
pub fn thread_id(number: u128) -> ThreadId {
    ThreadId::from_uuid(Uuid::from_u128(
        number.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835),
    ))
}

pub fn text(words: &str) -> ContentRef {
    ContentRef {
        digest: Digest::from_bytes([7; 32]),
        size: words.len() as u64,
        preview: words.to_owned(),
    }
}

pub fn settled(kind: StatusKind) -> Settled {
    match kind {
        StatusKind::Completed => completed(Some("done")),
        StatusKind::Errored => Settled::Errored {
            message: String::from("it broke"),
            content: None,
        },
        StatusKind::Interrupted => Settled::Interrupted {
            reason: String::from("enough"),
        },
        other => panic!("{other} is not a settled open status"),
    }
}

pub fn completed(message: Option<&str>) -> Settled {
    Settled::Completed {
        message: message.map(str::to_owned),
        content: None,
    }
}

pub fn ended(turn: u32, outcome: Settled) -> Report {
    let usage = Usage {
        output_tokens: 10,
        turns: turn,
        wall_time: Duration::from_secs(1),
        ..Usage::default()
    };
    ended_with(turn, outcome, usage)
}

pub fn ended_with(turn: u32, outcome: Settled, usage: Usage) -> Report {
    Report::TurnEnded {
        turn: Turn::new(turn),
        outcome,
        usage,
        price: None,
        digests: OutputDigests::default(),
        runner_stopped: false,
        result: None,
    }
}

pub fn stopped() -> Report {
    Report::Stopped {
        detail: String::from("exit status 0"),
    }
}

pub fn deny(origin: &str, patterns: &[&str]) -> Layer {
    Layer {
        origin: origin.to_owned(),
        mode: MatchMode::Glob,
        allow: Vec::new(),
        deny: patterns.iter().map(|pattern| (*pattern).to_owned()).collect(),
    }
}

/// Returns a change of these settings and no others.
pub fn changed(change: impl FnOnce(&mut SettingsChange)) -> SettingsChange {
    let mut changed = SettingsChange::default();
    change(&mut changed);
    changed
}

pub fn settings() -> Settings {
    Settings {
        webhooks: Vec::new(),
        ..samples::some_settings()
    }
}

/// Returns the fixed properties of a spawn, with only a role set.
pub fn role(agent_type: &str) -> Spawned {
    Spawned {
        role: Arc::new(Role {
            agent_type: agent_type.to_owned(),
            ..Role::default()
        }),
        sandbox: Sandbox::FullAccess,
        ..samples::root()
    }
}

/// Returns the role of a spawn, which a test can change.
pub fn role_of(spawn: &mut Spawn) -> &mut Role {
    Arc::make_mut(&mut spawn.spawned.role)
}

/// Returns a graph template with this scope.
pub fn graph_template(scope: Scope) -> TemplateSource {
    TemplateSource {
        scope,
        dialect: Dialect::Graph,
        path: String::from("docs/templates/lead.md"),
        digest: "0f".repeat(32),
        shadowed: Vec::new(),
    }
}

/// Returns a root that its client executes itself.
pub fn client_root() -> Spawned {
    Spawned {
        first_status: StatusKind::Running,
        client_owned: true,
        ..role("default")
    }
}

/// Returns a root that a runner executes.
pub fn run_root() -> Spawned {
    Spawned {
        input: Some(text("begin")),
        ..role("default")
    }
}

fn recorded(sequence: u64, time: u64, event: Event) -> Recorded {
    Recorded {
        time: UnixMillis::new(time),
        ..samples::at(sequence, event)
    }
}

/// Returns the name of an event's kind.
pub fn name(event: &Event) -> &'static str {
    let event = match event {
        Event::Session(SessionEvent::Opened(_)) => return "SessionOpened",
        Event::Session(SessionEvent::Updated(_)) => return "SessionUpdated",
        Event::Session(SessionEvent::Closed) => return "SessionClosed",
        Event::Thread(_, event) => event,
    };
    match event {
        ThreadEvent::Spawned(_) => "ThreadSpawned",
        ThreadEvent::SpawnFailed { .. } => "SpawnFailed",
        ThreadEvent::Admitted => "ThreadAdmitted",
        ThreadEvent::Placed { .. } => "ThreadPlaced",
        ThreadEvent::InputQueued { .. } => "InputQueued",
        ThreadEvent::TurnDispatched { .. } => "TurnDispatched",
        ThreadEvent::TurnStarted { .. } => "TurnStarted",
        ThreadEvent::InputDelivered { .. } => "InputDelivered",
        ThreadEvent::InterruptRequested { .. } => "InterruptRequested",
        ThreadEvent::TurnEnded { .. } => "TurnEnded",
        ThreadEvent::ResultReported { .. } => "ResultReported",
        ThreadEvent::GroupCreated { .. } => "GroupCreated",
        ThreadEvent::GroupUpdated { .. } => "GroupUpdated",
        ThreadEvent::GroupItemEnded { .. } => "GroupItemEnded",
        ThreadEvent::GroupEnding { .. } => "GroupEnding",
        ThreadEvent::GroupEnded { .. } => "GroupEnded",
        ThreadEvent::GroupRetried(_) => "GroupRetried",
        ThreadEvent::NoteSet(_) => "NoteSet",
        ThreadEvent::ConditionChanged { .. } => "ConditionChanged",
        ThreadEvent::UsageRecorded { .. } => "UsageRecorded",
        ThreadEvent::BudgetUpdated(_) => "BudgetUpdated",
        ThreadEvent::ArtifactRecorded { .. } => "ArtifactRecorded",
        ThreadEvent::ToolDenied { .. } => "ToolDenied",
        ThreadEvent::CloseRequested(_) => "CloseRequested",
        ThreadEvent::Closed { .. } => "ThreadClosed",
        ThreadEvent::Resumed(_) => "ThreadResumed",
        ThreadEvent::EdgeCreated(_) => "EdgeCreated",
        ThreadEvent::EdgeDeleted(_) => "EdgeDeleted",
        ThreadEvent::HandoffSent(_) => "HandoffSent",
        ThreadEvent::MailAcknowledged(_) => "MailAcknowledged",
        ThreadEvent::ApprovalRequested { .. } => "ApprovalRequested",
        ThreadEvent::ApprovalResolved { .. } => "ApprovalResolved",
    }
}
