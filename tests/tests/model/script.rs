//! The steps of a script. They refer to objects by number instead of id, so every part of a script is a valid script.

use proptest::{bool::weighted, collection::vec, option, prelude::*, sample::select};
use supervisor_core::settings::Urgency;
use troupe_proto::supervisor::v1::{
    Budget, CreateSessionRequest, Limits, PolicyInheritance, RestartPolicy, SlotRelease,
};

/// A number that selects an existing item when the step runs: the nth, modulo the number of items.
pub type Nth = u8;

/// The longest script.
const MAX_OPS: usize = 40;

/// The settings of the session.
#[derive(Clone, Debug)]
pub struct Setup {
    max_depth: u32,
    max_threads: u32,
    max_open_threads: u32,
    max_total_threads: u32,
    slot_release: SlotRelease,
    restart_policy: RestartPolicy,
    policy_inheritance: PolicyInheritance,
    approve_orchestrators: bool,
    /// Whether a runner executes the root. Otherwise its client executes it.
    run_root: bool,
    /// Maximum number of turns of the session; `None` is unlimited.
    turns: Option<u32>,
}

impl Setup {
    /// Returns the request that opens the session.
    pub fn request(&self) -> CreateSessionRequest {
        CreateSessionRequest {
            message: self.run_root.then(|| String::from("begin")),
            limits: Some(Limits {
                max_depth: Some(self.max_depth),
                max_threads: Some(self.max_threads),
                max_open_threads: Some(self.max_open_threads),
                max_total_threads: Some(self.max_total_threads),
            }),
            slot_release: self.slot_release.into(),
            restart_policy: self.restart_policy.into(),
            policy_inheritance: self.policy_inheritance.into(),
            approve_orchestrators: self.approve_orchestrators,
            budget: self.turns.map(|turns| Budget {
                turns,
                ..Budget::default()
            }),
            ..CreateSessionRequest::default()
        }
    }
}

/// The caller.
#[derive(Clone, Copy, Debug)]
pub enum Who {
    /// An operator.
    Operator,
    /// The nth thread, with the last token that a response contained for it.
    Thread(Nth),
}

/// A call.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// Spawns a thread below an open thread. `turns` is its budget; 0 is unlimited.
    Spawn {
        parent: Nth,
        role: Nth,
        alias: u8,
        queue: bool,
        wakes: bool,
        turns: u32,
    },
    Send {
        target: Nth,
        urgency: Urgency,
        queue: bool,
    },
    Interrupt {
        target: Nth,
        only_this: bool,
    },
    /// Closes a thread. The thread is rarely the root, because closing the root ends the session.
    Close(Nth),
    Resume(Nth),
    Note {
        target: Nth,
        blank: bool,
    },
    Connect {
        from: Nth,
        to: Nth,
        one_way: bool,
    },
    Disconnect(Nth),
    HandOff {
        from: Nth,
        to: Nth,
    },
    /// Acknowledges the target's mail up to its nth letter.
    Acknowledge {
        target: Nth,
        letter: Nth,
    },
    Budget {
        target: Nth,
        turns: u32,
    },
    Decide {
        approval: Nth,
        grant: bool,
    },
    Pause(bool),
    MoreSlots,
}

/// A call with its caller. With `twice`, the same request is made twice at the same time.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub by: Who,
    pub call: Call,
    pub twice: bool,
}

/// A runner's report about a turn.
#[derive(Clone, Copy, Debug)]
pub enum TurnReport {
    Completed,
    Errored,
    Interrupted,
    /// The agent received the oldest pending input.
    Delivered,
    /// The program ended.
    Stopped,
    Artifact,
    Gap,
    /// A report with the number of the last acknowledged report.
    Again,
    /// A report about an attempt that is not the current one.
    OtherAttempt,
}

/// A step of a script.
#[derive(Clone, Debug)]
pub enum Op {
    /// Makes these calls at the same time.
    Ask(Vec<Asked>),
    /// A runner performs the pending effect of the nth thread that has one.
    Work(Nth),
    /// The runner of the nth thread with a running turn sends a report.
    Say { target: Nth, what: TurnReport },
    /// A runner's stream breaks, and the runner attaches again without the nth of its attempts.
    ComeBack { runner: Nth, without: Option<Nth> },
    /// Repeats an accepted request of an operator.
    Retry(Nth),
    /// Restarts both services.
    Restart,
}

/// Generates the settings of a session.
pub fn setups() -> impl Strategy<Value = Setup> {
    (
        (1..=3_u32, 1..=4_u32, 4..=9_u32, 5..=14_u32),
        prop_oneof![3 => Just(SlotRelease::Settle), 1 => Just(SlotRelease::Close)],
        select(vec![RestartPolicy::Never, RestartPolicy::OnLost]),
        prop_oneof![3 => Just(PolicyInheritance::Attenuate), 1 => Just(PolicyInheritance::Ceiling)],
        weighted(0.2),
        any::<bool>(),
        option::weighted(0.2, 3..=12_u32),
    )
        .prop_map(
            |(limits, slot_release, restart_policy, policy_inheritance, approve_orchestrators, run_root, turns)| {
                let (max_depth, max_threads, max_open_threads, max_total_threads) = limits;
                Setup {
                    max_depth,
                    max_threads,
                    max_open_threads,
                    max_total_threads,
                    slot_release,
                    restart_policy,
                    policy_inheritance,
                    approve_orchestrators,
                    run_root,
                    turns,
                }
            },
        )
}

/// Generates scripts.
pub fn scripts() -> impl Strategy<Value = Vec<Op>> {
    vec(ops(), 1..=MAX_OPS)
}

fn ops() -> impl Strategy<Value = Op> {
    let nth = any::<Nth>;
    prop_oneof![
        12 => asked().prop_map(|asked| Op::Ask(vec![asked])),
        5 => vec(asked(), 2..=4).prop_map(Op::Ask),
        12 => nth().prop_map(Op::Work),
        9 => (nth(), turn_reports()).prop_map(|(target, what)| Op::Say { target, what }),
        2 => (nth(), option::of(nth())).prop_map(|(runner, without)| Op::ComeBack { runner, without }),
        2 => nth().prop_map(Op::Retry),
        1 => Just(Op::Restart),
    ]
}

fn asked() -> impl Strategy<Value = Asked> {
    let who = prop_oneof![
        3 => Just(Who::Operator),
        2 => any::<Nth>().prop_map(Who::Thread),
    ];
    (who, calls(), weighted(0.2)).prop_map(|(by, call, twice)| Asked { by, call, twice })
}

fn calls() -> impl Strategy<Value = Call> {
    let nth = any::<Nth>;
    let flag = any::<bool>;
    let turns = || prop_oneof![3 => Just(0_u32), 1 => 1..=3_u32];
    prop_oneof![
        12 => (nth(), nth(), 0..5_u8, flag(), weighted(0.3), turns()).prop_map(
            |(parent, role, alias, queue, wakes, turns)| Call::Spawn { parent, role, alias, queue, wakes, turns }
        ),
        6 => (nth(), select(&[Urgency::Wait, Urgency::Steer, Urgency::Interrupt][..]), flag())
            .prop_map(|(target, urgency, queue)| Call::Send { target, urgency, queue }),
        2 => (nth(), flag()).prop_map(|(target, only_this)| Call::Interrupt { target, only_this }),
        3 => nth().prop_map(Call::Close),
        3 => nth().prop_map(Call::Resume),
        1 => (nth(), flag()).prop_map(|(target, blank)| Call::Note { target, blank }),
        2 => (nth(), nth(), flag()).prop_map(|(from, to, one_way)| Call::Connect { from, to, one_way }),
        1 => nth().prop_map(Call::Disconnect),
        2 => (nth(), nth()).prop_map(|(from, to)| Call::HandOff { from, to }),
        1 => (nth(), nth()).prop_map(|(target, letter)| Call::Acknowledge { target, letter }),
        1 => (nth(), turns()).prop_map(|(target, turns)| Call::Budget { target, turns }),
        2 => (nth(), flag()).prop_map(|(approval, grant)| Call::Decide { approval, grant }),
        1 => flag().prop_map(Call::Pause),
        1 => Just(Call::MoreSlots),
    ]
}

fn turn_reports() -> impl Strategy<Value = TurnReport> {
    prop_oneof![
        6 => Just(TurnReport::Completed),
        2 => Just(TurnReport::Errored),
        1 => Just(TurnReport::Interrupted),
        1 => Just(TurnReport::Delivered),
        1 => Just(TurnReport::Stopped),
        1 => Just(TurnReport::Artifact),
        1 => Just(TurnReport::Gap),
        1 => Just(TurnReport::Again),
        1 => Just(TurnReport::OtherAttempt),
    ]
}
