//! The settings of a new session, for `spawn` and `session create`.

use std::time::Duration;

use troupe_proto::{
    common::v1::{EdgeManagement, Mode, Sandbox},
    supervisor::v1::{
        ApprovalTimeoutAction, Budget, CreateSessionRequest, Limits, Orchestration, PolicyInheritance, PromptLog,
        RestartPolicy, SlotRelease, ToolCeiling, TranscriptLog,
    },
};

use crate::{
    choices,
    error::Result,
    options::{self, bounded},
    time,
    webhook::WebhookArgs,
};

/// The settings of a new session.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
#[command(next_help_heading = "Settings of a new session")]
pub(crate) struct SessionSettings {
    /// Open the session for planning: the repository is read-only except docs/
    #[arg(long)]
    planning: bool,
    /// Start further turns of orchestrators until they report completion
    #[arg(long)]
    auto: bool,
    /// Loosest sandbox of the session's threads
    #[arg(long, value_name = "SANDBOX", value_parser = choices::sandbox())]
    sandbox: Option<Sandbox>,
    /// Tools that the session's threads may use at most, as patterns; may be repeated
    #[arg(long, value_name = "PATTERN")]
    allow_tool: Vec<String>,
    /// Tools that no thread of the session may use, as patterns; may be repeated
    #[arg(long, value_name = "PATTERN")]
    deny_tool: Vec<String>,
    /// Tools of which every call needs an operator's approval, as patterns; may be repeated
    #[arg(long, value_name = "PATTERN")]
    approve_tool: Vec<String>,
    /// Permissions of children: attenuate limits them to their parent's, ceiling to the session's
    #[arg(long, value_name = "POLICY", value_parser = choices::policy_inheritance())]
    policy_inheritance: Option<PolicyInheritance>,
    /// Maximum depth of the tree; the root has depth 0
    #[arg(long, value_name = "NUMBER")]
    max_depth: Option<u32>,
    /// Maximum number of active threads
    #[arg(long, value_name = "NUMBER")]
    max_threads: Option<u32>,
    /// Maximum number of open threads
    #[arg(long, value_name = "NUMBER")]
    max_open_threads: Option<u32>,
    /// Maximum number of threads in the session's lifetime
    #[arg(long, value_name = "NUMBER")]
    max_total_threads: Option<u32>,
    /// Event that frees a thread's slot
    #[arg(long, value_name = "EVENT", value_parser = choices::slot_release())]
    slot_release: Option<SlotRelease>,
    /// Token budget of the session
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    session_tokens: Option<u64>,
    /// Turn budget of the session
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    session_turns: Option<u32>,
    /// Time budget of the session, in running turns
    #[arg(long, value_name = "SPAN", value_parser = time::parse_some_duration)]
    session_time: Option<Duration>,
    /// Cost budget of the session, in its currency
    #[arg(long, value_name = "AMOUNT", value_parser = options::amount)]
    session_cost: Option<u64>,
    /// Require approvals for orchestrators too
    #[arg(long)]
    approve_orchestrators: bool,
    /// Graph templates whose threads need no approvals; may be repeated
    #[arg(long, value_name = "TEMPLATE")]
    orchestrator: Vec<String>,
    /// Edges that threads of graph templates may manage at most
    #[arg(long, value_name = "EDGES", value_parser = choices::edge_management())]
    session_edges: Option<EdgeManagement>,
    /// Stored part of each prompt
    #[arg(long, value_name = "PART", value_parser = choices::prompt_log())]
    prompt_log: Option<PromptLog>,
    /// Time for a decision on an approval; 0s sets no limit [default: 10m]
    #[arg(long, value_name = "SPAN", value_parser = time::parse_duration)]
    approval_timeout: Option<Duration>,
    /// Action for an approval without a decision in that time
    #[arg(long, value_name = "ACTION", value_parser = choices::approval_timeout_action())]
    on_approval_timeout: Option<ApprovalTimeoutAction>,
    /// Stored part of the transcripts
    #[arg(long, value_name = "PART", value_parser = choices::transcript_log())]
    transcript: Option<TranscriptLog>,
    /// Restart of threads whose runner is lost
    #[arg(long, value_name = "POLICY", value_parser = choices::restart_policy())]
    restart: Option<RestartPolicy>,
    /// Delete the session this long after its end
    #[arg(long, value_name = "SPAN", value_parser = time::parse_some_duration)]
    retention: Option<Duration>,
    /// Label of the session; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = options::key_value)]
    session_label: Vec<(String, String)>,
    /// Label that runners of the session must have; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = options::key_value)]
    runner_label: Vec<(String, String)>,
    /// The receivers of notifications.
    #[command(flatten)]
    webhooks: WebhookArgs,
}

impl SessionSettings {
    /// Returns whether a setting is given.
    pub(crate) fn is_given(&self) -> bool {
        *self != Self::default()
    }

    /// Returns a request with these settings.
    ///
    /// # Errors
    ///
    /// Fails if the file of the webhook secret cannot be read.
    pub(crate) fn request(self) -> Result<CreateSessionRequest> {
        let mode = if self.planning {
            Mode::Planning
        } else {
            Mode::Unspecified
        };
        let orchestration = if self.auto {
            Orchestration::Auto
        } else {
            Orchestration::Unspecified
        };
        let limits = Limits {
            max_depth: self.max_depth,
            max_threads: self.max_threads,
            max_open_threads: self.max_open_threads,
            max_total_threads: self.max_total_threads,
        };
        Ok(CreateSessionRequest {
            mode: mode.into(),
            orchestration: orchestration.into(),
            sandbox: self.sandbox.unwrap_or_default().into(),
            tool_ceiling: ceiling(self.allow_tool, self.deny_tool),
            approve_tools: self.approve_tool,
            policy_inheritance: self.policy_inheritance.unwrap_or_default().into(),
            limits: (limits != Limits::default()).then_some(limits),
            slot_release: self.slot_release.unwrap_or_default().into(),
            budget: bounded(Budget {
                tokens: self.session_tokens.unwrap_or_default(),
                turns: self.session_turns.unwrap_or_default(),
                wall_time: self.session_time.map(time::to_proto),
                cost_micros: self.session_cost.unwrap_or_default(),
            }),
            approve_orchestrators: self.approve_orchestrators,
            orchestrators: self.orchestrator,
            edge_management: self.session_edges.unwrap_or_default().into(),
            prompt_log: self.prompt_log.unwrap_or_default().into(),
            transcript: self.transcript.unwrap_or_default().into(),
            approval_timeout: self.approval_timeout.map(time::to_proto),
            on_approval_timeout: self.on_approval_timeout.unwrap_or_default().into(),
            restart_policy: self.restart.unwrap_or_default().into(),
            retention: self.retention.map(time::to_proto),
            labels: self.session_label.into_iter().collect(),
            runner_labels: self.runner_label.into_iter().collect(),
            webhooks: self.webhooks.webhooks()?,
            ..CreateSessionRequest::default()
        })
    }
}

/// Returns the tool lists, or `None` if both are empty.
pub(crate) fn ceiling(allow_list: Vec<String>, deny_list: Vec<String>) -> Option<ToolCeiling> {
    let is_given = !allow_list.is_empty() || !deny_list.is_empty();
    is_given.then_some(ToolCeiling { allow_list, deny_list })
}
