//! Random histories: operators and threads make calls, runners send late, repeated and invalid reports, runners are
//! lost, approvals are granted, denied and forgotten, and the service restarts. The [`laws`](crate::laws) are checked
//! after every append (see [`World::carry_out`]). At the end the session is closed, and a second run of the script must
//! produce the same log.
//!
//! `PROPTEST_CASES=20000 cargo test -p supervisor-svc --test domain model` tests more histories than a normal run.

use std::time::Duration;

use proptest::{collection::vec, option, prelude::*, sample::select};
use supervisor_core::{
    command::{Command, Report, ResultCheck},
    effect::{PendingEffect, pending_effect},
    event::{Artifact, Scope},
    ids::{ApprovalId, ArtifactId, Generation, ReportSequence, RunnerId, ThreadId, Turn},
    principal::Caller,
    settings::{ClosePolicy, EdgeManagement, Limits, OnLimit, RestartPolicy, Sandbox, Settings, SlotRelease, Urgency},
    state::{
        approval::Approval,
        thread::{LatestTurn, Thread},
    },
    status::StatusKind,
};
use tool_policy::{Inheritance, Layer, MatchMode};
use uuid::Uuid;

use crate::world::{
    World, client_root, close, decision, dispatching, ended, graph_template, name, note, operator, resume, role_of,
    run_root, settings, settled, spawning, stopped, text, thread_id,
};

// ---- possible steps ----

/// The settings of a session, and the roles of its threads.
#[derive(Clone, Debug)]
struct Setup {
    limits: Limits,
    slot_release: SlotRelease,
    restart_policy: RestartPolicy,
    inheritance: Inheritance,
    ceiling: Option<Layer>,
    approve_orchestrators: bool,
    client_executes_root: bool,
    roles: Vec<Role>,
    tools: Vec<String>,
}

#[derive(Clone, Debug)]
struct Role {
    /// The additional restriction of a spawn from this role.
    narrowing: Option<Layer>,
    layers: Vec<Layer>,
    grant_list: Vec<String>,
    spawn_list: Vec<String>,
    sandbox: Sandbox,
    close_policy: ClosePolicy,
    /// The scope and the declared edge management of a graph template; `None` for other roles.
    graph: Option<(Scope, EdgeManagement)>,
}

/// A number that selects an existing item when the step runs: the nth, modulo the number of items. Every part of a
/// script is therefore a valid script.
type Nth = u8;

/// The caller.
#[derive(Clone, Copy, Debug)]
enum Who {
    Operator,
    /// A thread, with its present token or that of an earlier attempt.
    Thread {
        nth: Nth,
        stale: bool,
    },
}

/// A step of a history.
#[derive(Clone, Debug)]
enum Op {
    /// A spawn. A thread spawns below itself unless `elsewhere` is set; an operator spawns anywhere.
    Spawn {
        by: Who,
        parent: Nth,
        elsewhere: bool,
        role: Nth,
        alias: u8,
        queue: bool,
    },
    Send {
        by: Who,
        target: Nth,
        urgency: Urgency,
        queue: bool,
        /// The number of repair turns, if the input has a result schema.
        repairs: Option<u32>,
    },
    /// A thread reports a result, or asks its parent.
    Answer {
        by: Who,
        target: Nth,
        asks: bool,
    },
    Interrupt {
        by: Who,
        target: Nth,
        turn: Option<u32>,
        only_this: bool,
    },
    /// Rarely closes the root, because that ends the session.
    Close {
        by: Who,
        target: Nth,
    },
    Resume {
        by: Who,
        target: Nth,
    },
    Note {
        by: Who,
        target: Nth,
        blank: bool,
    },
    /// The service and a runner perform the pending effects of the nth thread that has any.
    Work {
        target: Nth,
        runner: Nth,
    },
    /// The runner of the nth thread with a turn in progress sends a plausible report.
    ReportProgress {
        target: Nth,
        what: u8,
    },
    /// A runner sends an arbitrary report about any thread, or about an unknown one.
    ReportAnything {
        target: Option<Nth>,
        generation: i32,
        sequence: u64,
        turn: i32,
        what: u8,
    },
    /// A runner repeats an earlier report, because the acknowledgement was lost.
    Repeat(Nth),
    /// A dispatch for another attempt, or with a prompt that lacks the newest input.
    StaleDispatch {
        target: Nth,
        other_attempt: bool,
    },
    Lose {
        target: Nth,
        stale: bool,
    },
    RefuseStart {
        target: Nth,
        stale: bool,
    },
    Finish {
        target: Nth,
        forced: bool,
    },
    Pause(bool),
    MoreSlots,
    /// An operator decides an approval that is pending or was decided before.
    Decide {
        nth: Nth,
        pending: bool,
        grant: bool,
    },
    /// Time passes, and the service processes the deadlines that are due.
    Wait {
        minutes: u8,
    },
    /// The service restarts from a snapshot of the log.
    Restart,
    /// All threads under a fence are stopped.
    WindDown,
}

fn setups() -> impl Strategy<Value = Setup> {
    let limits = (1..=3_u32, 1..=4_u32, 3..=9_u32, 4..=12_u32).prop_map(
        |(max_depth, max_threads, max_open_threads, max_total_threads)| Limits {
            max_depth,
            max_threads,
            max_open_threads,
            max_total_threads,
        },
    );
    (
        limits,
        prop_oneof![3 => Just(SlotRelease::Settle), 1 => Just(SlotRelease::Close)],
        select(vec![RestartPolicy::Never, RestartPolicy::OnLost]),
        prop_oneof![3 => Just(Inheritance::Attenuate), 1 => Just(Inheritance::Ceiling)],
        option::weighted(0.3, layer("the session's tool_ceiling")),
        (prop_oneof![4 => Just(false), 1 => Just(true)], any::<bool>()),
        vec(role(), 1..4),
        vec("[a-d]{1,2}", 0..4),
    )
        .prop_map(
            |(limits, slot_release, restart_policy, inheritance, ceiling, (approve, client), roles, tools)| Setup {
                limits,
                slot_release,
                restart_policy,
                inheritance,
                ceiling,
                approve_orchestrators: approve,
                client_executes_root: client,
                roles,
                tools,
            },
        )
}

fn role() -> impl Strategy<Value = Role> {
    (
        option::weighted(0.2, layer("spawn")),
        prop_oneof![2 => Just(Vec::<Layer>::new()), 1 => vec(layer("role \"worker\""), 1..3)],
        prop_oneof![3 => Just(Vec::<String>::new()), 1 => vec(pattern(), 1..3)],
        prop_oneof![
            3 => Just(Vec::<String>::new()),
            1 => select(vec!["worker", "scout"]).prop_map(|name| vec![name.to_owned()]),
        ],
        select(vec![Sandbox::ReadOnly, Sandbox::WorkspaceWrite, Sandbox::FullAccess]),
        select(vec![ClosePolicy::Terminate, ClosePolicy::FinishTurn, ClosePolicy::Kill]),
        option::of((
            select(vec![Scope::Project, Scope::System]),
            select(vec![
                EdgeManagement::None,
                EdgeManagement::SelfOnly,
                EdgeManagement::All,
                EdgeManagement::All,
            ]),
        )),
    )
        .prop_map(
            |(narrowing, layers, grant_list, spawn_list, sandbox, close_policy, graph)| Role {
                narrowing,
                layers,
                grant_list,
                spawn_list,
                sandbox,
                close_policy,
                graph,
            },
        )
}

fn layer(origin: &'static str) -> impl Strategy<Value = Layer> {
    (
        prop_oneof![3 => Just(Vec::<String>::new()), 1 => vec(pattern(), 1..4)],
        vec(pattern(), 0..3),
    )
        .prop_map(move |(allow, deny)| Layer {
            origin: origin.to_owned(),
            mode: MatchMode::Glob,
            allow,
            deny,
        })
}

fn pattern() -> impl Strategy<Value = String> {
    select(vec![
        "a*",
        "?b",
        "c",
        "*d",
        "mcp__*",
        "web_search",
        "apply_*",
        "spawn_*",
        "s*",
        "*_agent",
        "*_*",
    ])
    .prop_map(str::to_owned)
}

fn who() -> impl Strategy<Value = Who> {
    prop_oneof![
        3 => Just(Who::Operator),
        2 => (any::<Nth>(), prop_oneof![9 => Just(false), 1 => Just(true)])
            .prop_map(|(nth, stale)| Who::Thread { nth, stale }),
    ]
}

fn calls() -> impl Strategy<Value = Op> {
    let on = || (who(), any::<Nth>());
    prop_oneof![
        8 => (on(), any::<bool>(), any::<Nth>(), 0..5_u8, any::<bool>()).prop_map(
            |((by, parent), elsewhere, role, alias, queue)| Op::Spawn { by, parent, elsewhere, role, alias, queue }
        ),
        6 => (on(), select(&[Urgency::Wait, Urgency::Steer, Urgency::Interrupt][..]), any::<bool>(),
            option::weighted(0.3, 0..3_u32))
            .prop_map(|((by, target), urgency, queue, repairs)| Op::Send { by, target, urgency, queue, repairs }),
        3 => (on(), any::<bool>()).prop_map(|((by, target), asks)| Op::Answer { by, target, asks }),
        3 => (on(), option::of(0..4_u32), any::<bool>())
            .prop_map(|((by, target), turn, only_this)| Op::Interrupt { by, target, turn, only_this }),
        2 => on().prop_map(|(by, target)| Op::Close { by, target }),
        3 => on().prop_map(|(by, target)| Op::Resume { by, target }),
        1 => (on(), any::<bool>()).prop_map(|((by, target), blank)| Op::Note { by, target, blank }),
    ]
}

fn work() -> impl Strategy<Value = Op> {
    let nth = any::<Nth>;
    prop_oneof![
        12 => (nth(), nth()).prop_map(|(target, runner)| Op::Work { target, runner }),
        10 => (nth(), any::<u8>()).prop_map(|(target, what)| Op::ReportProgress { target, what }),
        5 => (option::weighted(0.9, nth()), -1..=1_i32, 0..4_u64, -1..=1_i32, any::<u8>()).prop_map(
            |(target, generation, sequence, turn, what)| Op::ReportAnything { target, generation, sequence, turn, what }
        ),
        3 => nth().prop_map(Op::Repeat),
        1 => (nth(), any::<bool>()).prop_map(|(target, other_attempt)| Op::StaleDispatch { target, other_attempt }),
        2 => (nth(), any::<bool>()).prop_map(|(target, stale)| Op::Lose { target, stale }),
        1 => (nth(), any::<bool>()).prop_map(|(target, stale)| Op::RefuseStart { target, stale }),
        1 => (nth(), any::<bool>()).prop_map(|(target, forced)| Op::Finish { target, forced }),
        1 => any::<bool>().prop_map(Op::Pause),
        1 => Just(Op::MoreSlots),
        4 => (nth(), prop_oneof![4 => Just(true), 1 => Just(false)], prop_oneof![2 => Just(true), 1 => Just(false)])
            .prop_map(|(nth, pending, grant)| Op::Decide { nth, pending, grant }),
        2 => (0..12_u8).prop_map(|minutes| Op::Wait { minutes }),
        1 => Just(Op::Restart),
        1 => Just(Op::WindDown),
    ]
}

fn scripts() -> impl Strategy<Value = Vec<Op>> {
    vec(prop_oneof![calls(), work()], 0..60)
}

// ---- execution ----

/// A running history.
struct Play<'s> {
    setup: &'s Setup,
    world: World,
    /// The reports so far, and whether each changed anything.
    said: Vec<(Command, bool)>,
}

impl<'s> Play<'s> {
    fn open(setup: &'s Setup) -> Self {
        let settings = Settings {
            limits: setup.limits,
            slot_release: setup.slot_release,
            restart_policy: setup.restart_policy,
            policy_inheritance: setup.inheritance,
            tool_ceiling: setup.ceiling.clone(),
            approve_orchestrators: setup.approve_orchestrators,
            ..settings()
        };
        let mut root = if setup.client_executes_root {
            client_root()
        } else {
            run_root()
        };
        if let Some(ceiling) = &setup.ceiling {
            root.effective = root.effective.and(ceiling).expect("the generated patterns are good");
            root.grant = root.effective.clone();
        }
        let mut world = World::open(settings, root);
        world.tools.clone_from(&setup.tools);
        Self {
            setup,
            world,
            said: Vec::new(),
        }
    }

    fn perform(&mut self, op: &Op) {
        match op {
            Op::Pause(paused) => self.world.pause(*paused),
            Op::MoreSlots => {
                let present = self.world.session.settings.limits;
                let max_threads = (present.max_threads + 1).min(6);
                self.world
                    .update(|change| change.limits = Some(Limits { max_threads, ..present }));
            }
            Op::Restart => {
                let replayed = World::replay(&self.world.log);
                assert!(replayed == self.world.session, "the restart changes the state");
                self.world.session = replayed;
            }
            Op::WindDown => self.world.wind_down(),
            Op::Repeat(nth) => self.repeat(*nth),
            _ => {
                if let Some(command) = self.command(op) {
                    self.carry_out(command);
                }
            }
        }
    }

    fn carry_out(&mut self, command: Command) {
        let from = self.world.log.len();
        // The command may be rejected; the world checks that a rejection changed nothing.
        let _ = self.world.carry_out(&command);
        if matches!(command, Command::Report { .. }) {
            self.said.push((command, self.world.log.len() > from));
        }
    }

    /// Repeats a command. A repeated command has no second effect.
    fn repeat(&mut self, nth: Nth) {
        if self.said.is_empty() {
            return;
        }
        let (mut command, had_effect) = self.said[usize::from(nth) % self.said.len()].clone();
        if let Command::Report { thread, report, .. } = &mut command
            && let Report::TurnEnded { result, .. } = report
            && let Some(thread) = self.world.session.thread(*thread)
        {
            // The supervisor checks the last message of each report, repeated or not.
            *result = check(nth, thread);
        }
        let events = self.world.run(&command);
        assert!(
            !had_effect || events.is_empty(),
            "{command:?} had its effect twice: {events:?}"
        );
    }

    fn caller(&self, who: Who) -> Caller {
        match who {
            Who::Operator => operator(),
            Who::Thread { nth, stale } => {
                let thread = self.world.nth(nth);
                Caller::Thread {
                    id: thread.id,
                    generation: another(thread.generation, -i32::from(stale)),
                }
            }
        }
    }

    fn id(&self, nth: Nth) -> ThreadId {
        self.world.nth(nth).id
    }

    /// Returns the nth of the threads that `chosen` accepts.
    fn nth_of(&self, nth: Nth, chosen: impl Fn(&Thread) -> bool) -> Option<ThreadId> {
        let threads = self.world.session.in_spawn_order();
        let found: Vec<ThreadId> = threads
            .filter(|thread| chosen(thread))
            .map(|thread| thread.id)
            .collect();
        found.get(usize::from(nth).checked_rem(found.len())?).copied()
    }

    /// Returns the nth pending approval, or the nth of all approvals.
    fn nth_approval(&self, nth: Nth, pending: bool) -> Option<ApprovalId> {
        let approvals = self.world.session.approvals.values();
        let chosen = |approval: &Approval| !pending || approval.verdict.is_none();
        let found: Vec<ApprovalId> = approvals
            .filter(|approval| chosen(approval))
            .map(|approval| approval.id)
            .collect();
        found.get(usize::from(nth).checked_rem(found.len())?).copied()
    }

    /// Returns the command of a step. `None` if the session has no object for it.
    fn command(&mut self, op: &Op) -> Option<Command> {
        let on_limit = |queue| if queue { OnLimit::Queue } else { OnLimit::Refuse };
        Some(match *op {
            Op::Spawn {
                by,
                parent,
                elsewhere,
                role,
                alias,
                queue,
            } => {
                let caller = self.caller(by);
                let parent = match caller.thread() {
                    Some(own) if !elsewhere => own,
                    _ => self.id(parent),
                };
                self.spawn(caller, parent, role, alias, on_limit(queue))
            }
            Op::Send {
                by,
                target,
                urgency,
                queue,
                repairs,
            } => Command::SendInput {
                caller: self.caller(by),
                target: self.id(target),
                input: text("and this"),
                urgency,
                on_limit: on_limit(queue),
                result_repairs: repairs,
            },
            Op::Answer { by, target, asks } => {
                let (caller, target) = (self.caller(by), self.id(target));
                if asks {
                    Command::AskParent {
                        caller,
                        target,
                        question: String::from("which?"),
                    }
                } else {
                    Command::ReportResult {
                        caller,
                        target,
                        result: text("{}"),
                    }
                }
            }
            Op::Interrupt {
                by,
                target,
                turn,
                only_this,
            } => Command::Interrupt {
                caller: self.caller(by),
                target: self.id(target),
                turn: turn.map(Turn::new),
                only_this,
                reason: String::from("enough"),
            },
            Op::Close { by, target } => {
                let spared = target < 240;
                let target = self.nth_of(target, |thread| !spared || thread.spawned.parent.is_some())?;
                close(self.caller(by), target)
            }
            Op::Resume { by, target } => {
                let closed = |thread: &Thread| thread.status.kind() == StatusKind::Shutdown;
                let target = self.nth_of(target, closed).unwrap_or_else(|| self.id(target));
                resume(self.caller(by), target)
            }
            Op::Note { by, target, blank } => note(self.caller(by), self.id(target), if blank { " " } else { "on it" }),
            Op::Work { target, runner } => self.work(target, runner)?,
            Op::ReportProgress { target, what } => self.progress_report(target, what)?,
            Op::ReportAnything {
                target,
                generation,
                sequence,
                turn,
                what,
            } => match target {
                Some(target) => arbitrary_report(self.world.nth(target), generation, sequence, turn, what),
                None => Command::Report {
                    thread: thread_id(1_000_000),
                    generation: Generation::new(1),
                    sequence: ReportSequence::new(sequence),
                    report: report(what, Turn::new(1), self.world.nth(0)),
                },
            },
            Op::StaleDispatch { target, other_attempt } => {
                let waits = |thread: &Thread| !thread.pending_inputs.is_empty();
                let mut dispatch = self
                    .world
                    .dispatch_to(self.nth_of(target, waits)?, &RunnerId::new("r0"));
                if other_attempt {
                    dispatch.generation = another(dispatch.generation, 2);
                } else {
                    dispatch.inputs.pop();
                }
                let events = self.world.run(&dispatching(dispatch));
                assert!(events.is_empty(), "a stale dispatch is void: {events:?}");
                return None;
            }
            Op::Lose { target, stale } => {
                let thread = self
                    .world
                    .thread(self.nth_of(target, |thread| thread.runner.is_some())?);
                Command::LoseRunner {
                    thread: thread.id,
                    generation: another(thread.generation, -i32::from(stale)),
                    reason: String::from("its lease ran out"),
                }
            }
            Op::RefuseStart { target, stale } => {
                let thread = self.world.nth(target);
                Command::RefuseStart {
                    thread: thread.id,
                    generation: another(thread.generation, -i32::from(stale)),
                    message: String::from("no such program"),
                }
            }
            Op::Finish { target, forced } => Command::FinishClose {
                thread: self.id(target),
                forced,
            },
            Op::Decide { nth, pending, grant } => decision(self.nth_approval(nth, pending)?, grant),
            Op::Wait { minutes } => {
                self.world.pass(Duration::from_secs(u64::from(minutes) * 60));
                Command::Tick
            }
            Op::Repeat(_) | Op::Pause(_) | Op::MoreSlots | Op::Restart | Op::WindDown => return None,
        })
    }

    fn spawn(&mut self, caller: Caller, parent: ThreadId, role: Nth, alias: u8, on_limit: OnLimit) -> Command {
        let role = &self.setup.roles[usize::from(role) % self.setup.roles.len()];
        let mut spawn = self.world.wanted(parent);
        spawn.caller = caller;
        spawn.on_limit = on_limit;
        spawn.narrowing.clone_from(&role.narrowing);
        spawn.role_layers = role.layers.clone().into();
        spawn.grant_list.clone_from(&role.grant_list);
        role_of(&mut spawn).spawn_list.clone_from(&role.spawn_list);
        spawn.spawned.sandbox = role.sandbox;
        spawn.spawned.close_policy = role.close_policy;
        if let Some((scope, edge_management)) = role.graph {
            role_of(&mut spawn).source = Some(graph_template(scope));
            spawn.spawned.edge_management = edge_management;
        }
        if alias > 0 {
            spawn.spawned.alias = format!("Alias-{alias}");
        }
        spawning(spawn)
    }

    fn work(&self, target: Nth, runner: Nth) -> Option<Command> {
        let session = &self.world.session;
        let id = self.nth_of(target, |thread| pending_effect(session, thread.id).is_some())?;
        Some(match pending_effect(session, id)? {
            PendingEffect::Turn { .. } => {
                let runner = RunnerId::new(format!("r{}", runner % 2));
                dispatching(self.world.dispatch_to(id, &runner))
            }
            PendingEffect::Start { turn, .. } => self.world.says(id, Report::TurnStarted { turn }),
            PendingEffect::Interrupt { turn, .. } => {
                let outcome = settled(StatusKind::Interrupted);
                self.world.says(id, ended(turn.get(), outcome))
            }
            PendingEffect::Steer { turn, .. } => {
                let number = self.world.thread(id).pending_inputs.front()?.number;
                self.world.says(id, Report::InputDelivered { number, turn })
            }
            PendingEffect::Stop { .. } | PendingEffect::Close => self.world.stop(id)?,
        })
    }

    fn progress_report(&self, target: Nth, what: u8) -> Option<Command> {
        let id = self.nth_of(target, |thread| {
            thread.status.kind().is_active()
                && matches!(thread.turn, LatestTurn::Dispatched { .. } | LatestTurn::Running { .. })
        })?;
        let thread = self.world.thread(id);
        let turn = thread.turn.number();
        let report = match thread.turn {
            // Usually the turn starts. Other reports may arrive before the start too.
            LatestTurn::Dispatched { .. } if !what.is_multiple_of(5) => Report::TurnStarted { turn },
            _ => report(what, turn, thread),
        };
        Some(self.world.says(id, report))
    }
}

/// Returns a report about the thread that differs from the correct one by these offsets; `sequence` 1 is the next.
fn arbitrary_report(thread: &Thread, generation: i32, sequence: u64, turn: i32, what: u8) -> Command {
    let turn = Turn::new(thread.turn.number().get().saturating_add_signed(turn));
    Command::Report {
        thread: thread.id,
        generation: another(thread.generation, generation),
        sequence: ReportSequence::new(thread.last_report.get() + sequence),
        report: report(what, turn, thread),
    }
}

fn another(generation: Generation, by: i32) -> Generation {
    Generation::new(generation.get().saturating_add_signed(by))
}

fn report(what: u8, turn: Turn, thread: &Thread) -> Report {
    match what % 8 {
        0 => Report::TurnStarted { turn },
        1 => ended(turn.get(), settled(StatusKind::Errored)),
        2 => ended(turn.get(), settled(StatusKind::Interrupted)),
        3 => {
            let oldest = thread.pending_inputs.front().map(|input| input.number);
            Report::InputDelivered {
                number: oldest.unwrap_or(thread.last_input),
                turn,
            }
        }
        4 => stopped(),
        5 => Report::Artifact(Artifact {
            id: ArtifactId::from_uuid(Uuid::from_u128(u128::from(what))),
            name: String::from("notes.md"),
            kind: String::from("document"),
            media_type: String::from("text/markdown"),
            content: text("notes"),
            turn,
        }),
        6 => Report::PolicyGap(String::from("web_search cannot be denied")),
        _ => {
            let mut report = ended(turn.get(), settled(StatusKind::Completed));
            if let Report::TurnEnded { result, .. } = &mut report {
                *result = check(what / 8, thread);
            }
            report
        }
    }
}

/// Returns the check of a thread's last message, if the thread has a result to report.
fn check(what: u8, thread: &Thread) -> Option<Box<ResultCheck>> {
    let check = match what % 2 {
        0 => ResultCheck::Valid(text("{}")),
        _ => ResultCheck::Invalid {
            errors: String::from("- no"),
            repair: text("repair it"),
        },
    };
    thread.result_request.as_ref().map(|_| Box::new(check))
}

fn play(setup: &Setup, script: &[Op]) -> World {
    let mut play = Play::open(setup);
    for op in script {
        play.perform(op);
    }
    play.world
}

proptest! {
    #[test]
    fn laws_hold_in_every_history(setup in setups(), script in scripts()) {
        let world = play(&setup, &script);
        prop_assert!(World::replay(&world.log) == world.session, "a replay of the log gives another state");

        let again = play(&setup, &script);
        prop_assert!(
            again.log == world.log && again.session == world.session,
            "a second run of the script gives another history"
        );

        closing_ends(world);
    }
}

/// Asserts that after any history all open fences complete, and that closing the root closes the session.
fn closing_ends(mut world: World) {
    world.wind_down();
    let root = world.root();
    world.close(root);
    assert_eq!(world.session.open_count(), 0);
    assert!(world.session.closed);
    assert!(world.session.holding().is_empty());
    assert_eq!(World::replay(&world.log), world.session);
    let closed = world
        .log
        .iter()
        .filter(|recorded| name(&recorded.event) == "SessionClosed");
    assert_eq!(closed.count(), 1);
}

/// Within the append that closes a thread, its approvals are not decided yet.
#[test]
fn snapshot_may_split_an_append() {
    let (mut world, thread) = World::with_thread_in(StatusKind::AwaitingApproval);
    world.close(thread);
    for length in 1..=world.log.len() {
        World::replay(&world.log[..length]);
    }
}
