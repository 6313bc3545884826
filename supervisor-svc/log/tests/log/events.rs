//! Sample events of every kind, and their parts.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use supervisor_core::{
    content::ContentRef,
    event::{
        ApprovalDecision, ApprovalKind, Artifact, BlockKind, BlockRef, CallDetails, CloseCause, ConditionKind, Dialect,
        Edge, EdgeKind, Event, Expectation, Fence, Handoff, OutputDigests, PromptExtent, Resumed, Role, Scope,
        SessionEvent, SettingsChange, Spawned, TemplateSource, ThreadEvent, ValueOrigin,
    },
    group::{GroupLimits, GroupOutcome, GroupSpec, ItemOutcome, ItemRef, Join, OnFailure},
    ids::{
        ApprovalId, ArtifactId, Digest, EdgeId, Generation, GroupId, HandoffId, InputNumber, ReportSequence, RunnerId,
        Sequence, Turn,
    },
    principal::Actor,
    settings::{
        ApprovalTimeoutAction, Budget, ClosePolicy, Currency, EdgeManagement, Limits, Mode, NotificationKind,
        Orchestration, PromptLog, RestartPolicy, Sandbox, Settings, SlotRelease, StallRule, TranscriptLog, Usage,
        WakePolicy, Webhook,
    },
    status::{Settled, StatusKind},
    time::UnixMillis,
};
use tool_policy::{Inheritance, Layer, MatchMode, Policy};
use uuid::Uuid;

use crate::samples::{root, some_settings, thread};

pub const ROOT: u128 = 9;
/// A thread that settled once, was restarted, received mail, and is under a fence.
pub const BUSY: u128 = 5;
/// A thread in the middle of a turn.
pub const RUNNING: u128 = 7;

pub fn content(number: u8) -> ContentRef {
    ContentRef {
        digest: Digest::from_bytes([number; 32]),
        size: u64::from(number),
        preview: format!("content {number}"),
    }
}

pub fn layer(origin: &str, deny: &str) -> Layer {
    Layer {
        origin: origin.to_owned(),
        mode: MatchMode::GlobIgnoreCase,
        allow: Vec::new(),
        deny: vec![deny.to_owned()],
    }
}

/// A budget whose limits are all zero. This differs from a budget without limits.
pub const NOTHING: Budget = Budget {
    tokens: Some(0),
    turns: Some(0),
    wall_time: Some(Duration::ZERO),
    cost: Some(0),
};

pub fn usage(turns: u32) -> Usage {
    Usage {
        input_tokens: 11,
        cached_input_tokens: 7,
        output_tokens: 5,
        turns,
        wall_time: Duration::new(3, 1),
        cost: 13,
        unpriced_tokens: 17,
    }
}

pub fn settings() -> Settings {
    Settings {
        currency: Currency::USD,
        cwd: String::from("/project"),
        workspace_digest: String::from("digest"),
        workspace: Some(content(7)),
        limits: Limits {
            max_depth: 3,
            ..Limits::default()
        },
        slot_release: SlotRelease::Close,
        budget: NOTHING,
        mode: Mode::Planning,
        orchestration: Orchestration::Auto,
        edge_management: EdgeManagement::SelfOnly,
        orchestrators: vec![String::from("lead")],
        approve_orchestrators: true,
        prompt_log: PromptLog::Hashes,
        transcript: TranscriptLog::Tools,
        approval_timeout: Duration::from_secs(90),
        on_approval_timeout: ApprovalTimeoutAction::Keep,
        restart_policy: RestartPolicy::OnLost,
        policy_inheritance: Inheritance::Ceiling,
        tool_ceiling: Some(layer("ceiling", "web_*")),
        approve_tools: vec![String::from("exec_*")],
        webhooks: vec![Webhook {
            url: String::from("https://example.org/hook"),
            kinds: vec![NotificationKind::Stalled],
            secret: String::from("secret"),
        }],
        labels: BTreeMap::from([(String::from("team"), String::from("red"))]),
        runner_labels: BTreeMap::from([(String::from("zone"), String::from("a"))]),
        stall: StallRule {
            repeats: 4,
            silence: Duration::from_secs(70),
        },
        retention: Some(Duration::from_secs(60)),
    }
}

pub fn spawned(parent: Option<u128>, alias: &str) -> Spawned {
    let effective = Policy::compile(vec![layer("ceiling", "web_*"), layer("role \"worker\"", "exec_*")]).unwrap();
    Spawned {
        parent: parent.map(thread),
        depth: u32::from(parent.is_some()),
        first_status: StatusKind::PendingInit,
        client_owned: false,
        role: Arc::new(Role {
            agent_type: String::from("worker"),
            agent_name: String::from("fast"),
            agent_description: String::from("works"),
            model: String::from("model"),
            reasoning_effort: String::from("high"),
            provider: String::from("provider"),
            origins: BTreeMap::from([(String::from("model"), ValueOrigin::Alias)]),
            spawn_list: vec![String::from("scout")],
            source: Some(TemplateSource {
                scope: Scope::User,
                dialect: Dialect::Profile,
                path: String::from("/home/worker.md"),
                digest: String::from("ab"),
                shadowed: vec![String::from("/system/worker.md")],
            }),
            resolved: Some(content(1)),
        }),
        alias: alias.to_owned(),
        label: String::from("label"),
        note: "note".into(),
        working_directory: "/project/a".into(),
        sandbox: Sandbox::ReadOnly,
        effective,
        grant: Policy::unrestricted(),
        edge_management: EdgeManagement::SelfOnly,
        budget: NOTHING,
        close_policy: ClosePolicy::FinishTurn,
        wake_policy: WakePolicy::OnIdle,
        input: Some(content(2)),
        result_repairs: Some(0),
        item: None,
    }
}

pub fn placed(runner: &str, generation: u32) -> ThreadEvent {
    ThreadEvent::Placed {
        runner: RunnerId::new(runner),
        generation: Generation::new(generation),
    }
}

pub fn dispatched(turn: u32, generation: u32, inputs: &[u32], mail_up_to: u64) -> ThreadEvent {
    ThreadEvent::TurnDispatched {
        turn: Turn::new(turn),
        generation: Generation::new(generation),
        inputs: inputs.iter().copied().map(InputNumber::new).collect(),
        blocks: Vec::new(),
        whole: None,
        extent: PromptExtent::Full,
        mail_up_to: Sequence::new(mail_up_to),
    }
}

pub fn started(turn: u32, generation: u32) -> ThreadEvent {
    ThreadEvent::TurnStarted {
        turn: Turn::new(turn),
        generation: Generation::new(generation),
        report: ReportSequence::new(1),
    }
}

pub fn ended(turn: u32, generation: u32, message: &str) -> ThreadEvent {
    ThreadEvent::TurnEnded {
        turn: Turn::new(turn),
        generation: Generation::new(generation),
        outcome: Settled::Completed {
            message: Some(message.to_owned()),
            content: None,
        },
        usage: usage(1),
        digests: Box::new(OutputDigests {
            output: Some(Digest::from_bytes([4; 32])),
            diff: Some(Digest::from_bytes([5; 32])),
        }),
        result_repair: false,
        report: ReportSequence::new(2),
    }
}

pub fn queued(number: u32) -> ThreadEvent {
    ThreadEvent::InputQueued {
        number: InputNumber::new(number),
        input: content(3),
        from: Actor::Service,
        steers: number.is_multiple_of(2),
        result_repairs: (number > 1).then_some(number),
    }
}

pub fn asked(number: u128) -> ThreadEvent {
    ThreadEvent::ApprovalRequested {
        approval: ApprovalId::from_uuid(Uuid::from_u128(number)),
        kind: ApprovalKind::Tool,
        subject: String::from("Tool call: exec_command"),
        deadline: Some(UnixMillis::new(90_000)),
        edge: Some(edge()),
        call: Some(Box::new(CallDetails {
            digest: Digest::of(b"call"),
            content: content(9),
        })),
    }
}

pub fn edge() -> Edge {
    Edge {
        id: EdgeId::from_uuid(Uuid::from_u128(20)),
        from: thread(RUNNING),
        to: thread(BUSY),
        bidirectional: true,
        kind: EdgeKind::Report,
        label: String::from("results"),
    }
}

pub fn handoff() -> Handoff {
    Handoff {
        id: HandoffId::from_uuid(Uuid::from_u128(21)),
        from: thread(RUNNING),
        to: thread(BUSY),
        message: content(5),
        structured: Some(content(6)),
        artifacts: vec![(String::from("file"), String::from("notes.md"))],
        verdict: Some((false, String::from("not yet"))),
        expectation: Expectation::Required,
        reply_to: Some(thread(ROOT)),
        context_ref: String::from("issue"),
    }
}

pub fn fence() -> Fence {
    Fence {
        reason: String::from("enough"),
        cause: CloseCause::Eviction,
        status_before: StatusKind::PendingInit,
        deadline: UnixMillis::new(95_000),
        close_policy: Some(ClosePolicy::Kill),
    }
}

/// Returns events of every kind: with all parts, and with as few parts as possible. Parts of the same type have
/// different values, so that a mix-up is detected.
pub fn events() -> Vec<Event> {
    let changes = [
        SettingsChange::default(),
        SettingsChange {
            paused: Some(false),
            orchestrators: Some(Vec::new()),
            webhooks: Some(Vec::new()),
            ..SettingsChange::default()
        },
        SettingsChange {
            mode: Some(Mode::Planning),
            limits: Some(settings().limits),
            budget: Some(NOTHING),
            paused: Some(true),
            orchestration: Some(Orchestration::Auto),
            edge_management: Some(EdgeManagement::All),
            orchestrators: Some(settings().orchestrators),
            webhooks: Some(settings().webhooks),
        },
    ];
    let other = Settings {
        currency: Currency::parse("EUR").unwrap(),
        tool_ceiling: Some(Layer {
            allow: vec![String::from("read_*")],
            ..layer("ceiling", "web_*")
        }),
        ..settings()
    };
    let sessions = [some_settings(), settings(), other].map(|settings| SessionEvent::Opened(Box::new(settings)));
    let changes = changes.map(|change| SessionEvent::Updated(Box::new(change)));
    let of_session = sessions.into_iter().chain(changes).chain([SessionEvent::Closed]);
    let of_threads = [spawns(), turns(), budgets(), others(), graph(), groups(), ends()];
    let of_threads = of_threads.into_iter().flatten();
    of_session
        .map(Event::Session)
        .chain(of_threads.map(|event| Event::Thread(thread(BUSY), event)))
        .collect()
}

fn item() -> ItemRef {
    ItemRef {
        group: GroupId::from_uuid(Uuid::from_u128(40)),
        item: 6,
    }
}

fn spawns() -> Vec<ThreadEvent> {
    let of_item = Spawned {
        first_status: StatusKind::Running,
        client_owned: true,
        item: Some(item()),
        ..spawned(Some(ROOT), "Alias")
    };
    let spawns = [root(), spawned(None, ""), of_item];
    let failed = ThreadEvent::SpawnFailed {
        agent_type: String::from("worker"),
        agent_name: String::from("fast"),
        reason: String::from("NOT_FOUND"),
        message: String::from("no such role"),
    };
    let spawns = spawns.map(|spawned| ThreadEvent::Spawned(Arc::new(spawned)));
    spawns.into_iter().chain([failed, ThreadEvent::Admitted]).collect()
}

/// Returns outcomes with and without a text and a content. An empty message differs from a missing message.
fn outcomes() -> Vec<Settled> {
    let message = |message: Option<&str>, content| Settled::Completed {
        message: message.map(str::to_owned),
        content,
    };
    let error = |message: &str, content| Settled::Errored {
        message: message.to_owned(),
        content,
    };
    vec![
        message(None, None),
        message(Some(""), None),
        message(Some("done"), Some(content(11))),
        error("", None),
        error("failed", Some(content(12))),
        Settled::Interrupted {
            reason: String::from("stop"),
        },
    ]
}

fn turns() -> Vec<ThreadEvent> {
    let ends = outcomes().into_iter().map(|outcome| ThreadEvent::TurnEnded {
        turn: Turn::new(2),
        generation: Generation::new(3),
        outcome,
        usage: usage(1),
        digests: Box::default(),
        result_repair: true,
        report: ReportSequence::ZERO,
    });
    let prompted = ThreadEvent::TurnDispatched {
        turn: Turn::new(4),
        generation: Generation::new(5),
        inputs: vec![InputNumber::new(6), InputNumber::new(7)],
        blocks: vec![BlockRef {
            kind: BlockKind::Task,
            content: content(13),
        }],
        whole: Some(Digest::of(b"prompt")),
        extent: PromptExtent::Delta,
        mail_up_to: Sequence::new(8),
    };
    let others = [
        placed("r1", 2),
        queued(1),
        queued(2),
        dispatched(1, 2, &[], 0),
        prompted,
        started(2, 3),
        ended(3, 4, "done"),
        ThreadEvent::InputDelivered {
            number: InputNumber::new(1),
            turn: Turn::new(2),
            generation: Generation::new(3),
            report: ReportSequence::new(4),
        },
        ThreadEvent::InterruptRequested {
            turn: Turn::new(2),
            reason: String::from("stop"),
        },
        ThreadEvent::ResultReported {
            turn: Turn::new(2),
            result: content(14),
        },
    ];
    ends.chain(others).collect()
}

/// Returns budgets with and without limits. A limit of zero differs from no limit.
fn budgets() -> Vec<ThreadEvent> {
    let none = Budget::default();
    let budgets = [
        none,
        NOTHING,
        Budget {
            tokens: Some(1),
            turns: Some(2),
            wall_time: Some(Duration::new(3, 4)),
            cost: Some(5),
        },
        Budget {
            tokens: Some(0),
            ..none
        },
        Budget { turns: Some(0), ..none },
        Budget { cost: Some(0), ..none },
    ];
    budgets.map(ThreadEvent::BudgetUpdated).into()
}

fn artifact() -> Artifact {
    Artifact {
        id: ArtifactId::from_uuid(Uuid::from_u128(41)),
        name: String::from("notes.md"),
        kind: String::from("file"),
        media_type: String::from("text/markdown"),
        content: content(15),
        turn: Turn::new(2),
    }
}

fn others() -> Vec<ThreadEvent> {
    let condition = |active| ThreadEvent::ConditionChanged {
        kind: ConditionKind::PolicyGap,
        active,
        reason: String::from("web_search"),
    };
    vec![
        ThreadEvent::NoteSet(String::new()),
        ThreadEvent::NoteSet(String::from("a\n\0\u{e9}")),
        condition(true),
        condition(false),
        ThreadEvent::UsageRecorded {
            generation: Generation::new(2),
            usage: usage(3),
        },
        ThreadEvent::ArtifactRecorded {
            artifact: artifact(),
            generation: Generation::new(3),
            report: ReportSequence::new(4),
        },
        ThreadEvent::ToolDenied {
            tool: String::from("exec_command"),
            reason: String::from("not allowed"),
            count: 2,
        },
    ]
}

fn graph() -> Vec<ThreadEvent> {
    let plain = Handoff {
        structured: None,
        artifacts: Vec::new(),
        verdict: None,
        expectation: Expectation::None,
        reply_to: None,
        context_ref: String::new(),
        ..handoff()
    };
    let good = Handoff {
        verdict: Some((true, String::new())),
        ..handoff()
    };
    let handoffs = [handoff(), plain, good].map(|handoff| ThreadEvent::HandoffSent(Box::new(handoff)));
    let plain = ThreadEvent::ApprovalRequested {
        approval: ApprovalId::from_uuid(Uuid::from_u128(42)),
        kind: ApprovalKind::Spawn,
        subject: String::from("Spawn node"),
        deadline: None,
        edge: None,
        call: None,
    };
    let resolved = ThreadEvent::ApprovalResolved {
        approval: ApprovalId::from_uuid(Uuid::from_u128(42)),
        decision: ApprovalDecision::Expired,
        by: Actor::Service,
        reason: String::from("no decision"),
    };
    let others = [
        ThreadEvent::EdgeCreated(edge()),
        ThreadEvent::EdgeCreated(Edge {
            bidirectional: false,
            ..edge()
        }),
        ThreadEvent::EdgeDeleted(edge().id),
        ThreadEvent::MailAcknowledged(Sequence::new(3)),
        asked(43),
        plain,
        resolved,
    ];
    handoffs.into_iter().chain(others).collect()
}

fn groups() -> Vec<ThreadEvent> {
    let group = item().group;
    let limits = GroupLimits {
        max_concurrency: 3,
        tolerated_failures: 4,
        paused: true,
    };
    let spec = GroupSpec {
        id: group,
        name: String::from("review"),
        creator: Actor::Thread(thread(ROOT)),
        plan: content(16),
        item_count: 9,
        join: Join::Quorum(2),
        on_failure: OnFailure::CancelRest,
        item_deadline: Some(Duration::from_millis(1_500)),
        retries: 1,
        budget: NOTHING,
        limits,
    };
    let any = GroupSpec {
        join: Join::Quorum(1),
        ..spec.clone()
    };
    let all = GroupSpec {
        join: Join::All,
        item_deadline: None,
        budget: Budget::default(),
        ..spec.clone()
    };
    let approval = Some(ApprovalId::from_uuid(Uuid::from_u128(44)));
    let created = [(spec, approval), (any, None), (all, None)].map(|(spec, approval)| ThreadEvent::GroupCreated {
        spec: Arc::new(spec),
        approval,
    });
    let outcomes = [GroupOutcome::Succeeded, GroupOutcome::Failed, GroupOutcome::Cancelled];
    let reason = || String::from("all items ended");
    let ending = outcomes.map(|outcome| ThreadEvent::GroupEnding {
        group,
        outcome,
        reason: reason(),
    });
    let table = Artifact {
        name: String::from("group-results.json"),
        kind: String::from("group-results"),
        media_type: String::from("application/json"),
        turn: Turn::ZERO,
        ..artifact()
    };
    let others = [
        ThreadEvent::GroupUpdated { group, limits },
        ThreadEvent::GroupUpdated {
            group,
            limits: GroupLimits {
                paused: false,
                ..limits
            },
        },
        ThreadEvent::GroupItemEnded {
            item: item(),
            outcome: ItemOutcome::Retried,
            reason: reason(),
        },
        ThreadEvent::GroupEnded {
            group,
            outcome: GroupOutcome::Failed,
            reason: reason(),
            table: Box::new(table),
        },
        ThreadEvent::GroupRetried(group),
    ];
    created.into_iter().chain(ending).chain(others).collect()
}

fn ends() -> Vec<ThreadEvent> {
    let causes = [
        CloseCause::Close,
        CloseCause::Session,
        CloseCause::Eviction,
        CloseCause::Intensity,
        CloseCause::Group,
    ];
    let fences = causes.map(|cause| Fence {
        cause,
        close_policy: None,
        ..fence()
    });
    let resumed = outcomes().into_iter().map(|settled| Resumed {
        generation: Generation::new(2),
        settled,
        effective: spawned(None, "").effective,
        grant: spawned(None, "").grant,
        sandbox: Sandbox::ReadOnly,
    });
    let closed = [(true, "deadline"), (false, "")].map(|(forced, reason)| ThreadEvent::Closed {
        forced,
        reason: reason.to_owned(),
    });
    let fences = [fence()].into_iter().chain(fences).map(ThreadEvent::CloseRequested);
    let resumed = resumed.map(|resumed| ThreadEvent::Resumed(Box::new(resumed)));
    fences.chain(resumed).chain(closed).collect()
}
