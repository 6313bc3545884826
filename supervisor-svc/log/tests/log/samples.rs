//! A sample session and its records, for tests of conversions.

use std::{collections::BTreeMap, sync::Arc};

use supervisor_core::{
    event::{Event, EventMetadata, Recorded, Role, SessionEvent, Spawned},
    ids::{Sequence, SessionId, ThreadId},
    principal::Actor,
    settings::{
        ApprovalTimeoutAction, Budget, ClosePolicy, Currency, EdgeManagement, Limits, Mode, NotificationKind,
        Orchestration, PromptLog, RestartPolicy, Sandbox, Settings, SlotRelease, StallRule, TranscriptLog, WakePolicy,
        Webhook,
    },
    status::StatusKind,
    time::UnixMillis,
};
use tool_policy::{Inheritance, Policy};
use uuid::Uuid;

/// The secret of the session's webhook.
pub const SECRET: &str = "do-not-tell";

pub fn session(number: u128) -> SessionId {
    SessionId::from_uuid(Uuid::from_u128(number))
}

pub fn thread(number: u128) -> ThreadId {
    ThreadId::from_uuid(Uuid::from_u128(number))
}

pub fn at(sequence: u64, event: Event) -> Recorded {
    Recorded {
        sequence: Sequence::new(sequence),
        time: UnixMillis::new(1_000 + sequence),
        metadata: EventMetadata {
            actor: Actor::Service,
            request_id: None,
            traceparent: None,
            cause: None,
            contents_left_out: false,
        },
        event,
    }
}

pub fn root() -> Spawned {
    Spawned {
        parent: None,
        depth: 0,
        first_status: StatusKind::PendingInit,
        client_owned: false,
        role: Arc::new(Role {
            agent_type: "worker".to_owned(),
            ..Role::default()
        }),
        alias: String::new(),
        label: String::new(),
        note: Arc::default(),
        working_directory: Arc::default(),
        sandbox: Sandbox::WorkspaceWrite,
        effective: Policy::unrestricted(),
        grant: Policy::unrestricted(),
        edge_management: EdgeManagement::None,
        budget: Budget::default(),
        close_policy: ClosePolicy::Terminate,
        wake_policy: WakePolicy::None,
        input: None,
        result_repairs: None,
        item: None,
    }
}

pub fn some_settings() -> Settings {
    Settings {
        currency: Currency::USD,
        cwd: "/project".to_owned(),
        workspace_digest: String::new(),
        workspace: None,
        limits: Limits::default(),
        slot_release: SlotRelease::default(),
        budget: Budget::default(),
        mode: Mode::default(),
        orchestration: Orchestration::default(),
        edge_management: EdgeManagement::All,
        orchestrators: Vec::new(),
        approve_orchestrators: false,
        prompt_log: PromptLog::default(),
        transcript: TranscriptLog::default(),
        approval_timeout: supervisor_core::rules::approval::APPROVAL_TIMEOUT,
        on_approval_timeout: ApprovalTimeoutAction::default(),
        restart_policy: RestartPolicy::default(),
        policy_inheritance: Inheritance::default(),
        tool_ceiling: None,
        webhooks: vec![Webhook {
            url: "https://example.org/hook".to_owned(),
            kinds: vec![NotificationKind::Stalled],
            secret: SECRET.to_owned(),
        }],
        labels: BTreeMap::new(),
        approve_tools: Vec::new(),
        runner_labels: BTreeMap::new(),
        stall: StallRule::default(),
        retention: None,
    }
}

pub fn opened() -> Event {
    Event::Session(SessionEvent::Opened(Box::new(some_settings())))
}
