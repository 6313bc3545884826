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

/// What a session is opened with.
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
    /// Whether a runner executes the root; else its client does.
    run_root: bool,
    /// The session's budget of turns; `None` is unlimited.
    turns: Option<u32>,
}

impl Setup {
    /// The request that opens the session.
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
    /// Under an open thread; `turns` is its budget, 0: none.
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
    /// The root only once in a while: it ends the session.
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
    /// The target's mail up to its nth letter.
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

/// A call with its caller, made once or twice at once under one request id.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub by: Who,
    pub call: Call,
    pub twice: bool,
}

/// What a runner says about a turn.
#[derive(Clone, Copy, Debug)]
pub enum Saying {
    Completed,
    Errored,
    Interrupted,
    /// The oldest waiting input reached the agent.
    Delivered,
    /// The program ended.
    Stopped,
    Artifact,
    Gap,
    /// Mail that was acknowledged long ago.
    Again,
    /// About another attempt than the present one.
    OtherAttempt,
}

/// One thing that happens.
#[derive(Clone, Debug)]
pub enum Op {
    /// These calls are made at once.
    Ask(Vec<Asked>),
    /// A runner performs the pending effects of the nth thread that has any.
    Work(Nth),
    /// The runner of the nth thread with a turn under way says something.
    Say { target: Nth, what: Saying },
    /// A runner's stream breaks, and it comes back, having lost the nth of the attempts that it held.
    ComeBack { runner: Nth, without: Option<Nth> },
    /// An accepted request of an operator is made again.
    Retry(Nth),
    /// Both services stop and start again.
    Restart,
}

/// Every way to open a session.
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

/// Every history.
pub fn scripts() -> impl Strategy<Value = Vec<Op>> {
    vec(ops(), 1..=MAX_OPS)
}

fn ops() -> impl Strategy<Value = Op> {
    let nth = any::<Nth>;
    prop_oneof![
        12 => asked().prop_map(|asked| Op::Ask(vec![asked])),
        5 => vec(asked(), 2..=4).prop_map(Op::Ask),
        12 => nth().prop_map(Op::Work),
        9 => (nth(), sayings()).prop_map(|(target, what)| Op::Say { target, what }),
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

fn sayings() -> impl Strategy<Value = Saying> {
    prop_oneof![
        6 => Just(Saying::Completed),
        2 => Just(Saying::Errored),
        1 => Just(Saying::Interrupted),
        1 => Just(Saying::Delivered),
        1 => Just(Saying::Stopped),
        1 => Just(Saying::Artifact),
        1 => Just(Saying::Gap),
        1 => Just(Saying::Again),
        1 => Just(Saying::OtherAttempt),
    ]
}
