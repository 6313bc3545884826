//! Session settings: limits, policies, mode and labels.

use std::{collections::BTreeMap, num::NonZeroU32, time::Duration};

use tool_policy::{Inheritance, Layer, MatchMode, Policy, PolicyError};

use crate::{content::ContentRef, time::UnixMillis};

/// The access of an agent to files and network, ordered from strict to loose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sandbox {
    /// No writes outside a scratch directory, and no network access for tools.
    ReadOnly,
    /// Writes only inside the working directory.
    WorkspaceWrite,
    /// No sandbox restrictions.
    FullAccess,
}

/// The current mode of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Read-only except docs/.
    Planning,
    /// Code edits are allowed.
    #[default]
    Implementation,
}

/// The edges that a thread may manage. Each value includes the previous ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum EdgeManagement {
    /// None.
    #[default]
    None,
    /// The thread's own edges.
    SelfOnly,
    /// All edges.
    All,
}

impl EdgeManagement {
    /// Returns the edge management that the capabilities of a graph template declare. Other capabilities are ignored.
    #[must_use]
    pub fn of_capabilities(names: &[String]) -> Self {
        let has = |name: &str| names.iter().any(|given| given == name);
        if has("edge_management_all") || has("spawn_nodes") {
            Self::All
        } else if has("edge_management_self") {
            Self::SelfOnly
        } else {
            Self::None
        }
    }

    /// Returns the display name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::SelfOnly => "self",
            Self::All => "all",
        }
    }
}

/// The orchestration mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Orchestration {
    /// Turns start only on request.
    #[default]
    Interactive,
    /// An orchestrator receives another turn automatically until it is done.
    Auto,
}

/// The parts of prompts that are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PromptLog {
    /// Texts.
    #[default]
    Full,
    /// Digests.
    Hashes,
    /// Nothing.
    Off,
}

/// The action for an approval without a decision in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApprovalTimeoutAction {
    /// The approval is denied.
    #[default]
    Deny,
    /// The approval waits until it is decided.
    Keep,
}

/// The parts of transcripts that are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TranscriptLog {
    /// Everything.
    #[default]
    Full,
    /// Calls of tools, without messages and results.
    Tools,
    /// Nothing.
    Off,
}

/// The behavior when a thread's runner is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestartPolicy {
    /// The thread is settled as ERRORED if its turn had started. Otherwise it is placed again.
    #[default]
    Never,
    /// The thread is placed again.
    OnLost,
}

/// The event that frees a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlotRelease {
    /// Settling.
    #[default]
    Settle,
    /// Closing only.
    Close,
}

/// How a running turn ends when its thread closes, ordered from mild to strict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClosePolicy {
    /// The turn may finish before the cascade's deadline.
    FinishTurn,
    /// Request a stop, then kill after the grace period.
    #[default]
    Terminate,
    /// Kill immediately.
    Kill,
}

/// Whether mail wakes a settled thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WakePolicy {
    /// Never.
    #[default]
    None,
    /// When it is COMPLETED.
    OnIdle,
    /// When it is settled and open, for any outcome.
    Always,
}

/// The time at which an active thread receives further input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Urgency {
    /// With its next turn.
    #[default]
    Wait,
    /// During the running turn if the program supports it, otherwise with the next turn.
    Steer,
    /// With the next turn. The running turn is stopped.
    Interrupt,
}

/// The behavior when no slot is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLimit {
    /// The call is rejected.
    #[default]
    Refuse,
    /// The thread waits in the queue.
    Queue,
}

/// Limits of a session's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum depth of a thread. The root has depth 0.
    pub max_depth: u32,
    /// Maximum number of active threads, without the root.
    pub max_threads: u32,
    /// Maximum number of open threads, including the root.
    pub max_open_threads: u32,
    /// Maximum number of threads over the session's lifetime, including the root.
    pub max_total_threads: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_depth: 2,
            max_threads: 12,
            max_open_threads: 1_000,
            max_total_threads: 10_000,
        }
    }
}

impl Limits {
    /// Upper bounds of the limits, which no configuration can exceed.
    pub const CEILING: Self = Self {
        max_depth: 16,
        max_threads: 10_000,
        max_open_threads: 10_000,
        max_total_threads: 100_000,
    };

    /// Checks configured limits against [`Self::CEILING`].
    ///
    /// # Errors
    /// A sentence that names the limit, its value and its bounds.
    pub fn check(&self) -> Result<(), String> {
        let bounds = [
            ("max_depth", self.max_depth, 0, Self::CEILING.max_depth),
            ("max_threads", self.max_threads, 1, Self::CEILING.max_threads),
            (
                "max_open_threads",
                self.max_open_threads,
                1,
                Self::CEILING.max_open_threads,
            ),
            (
                "max_total_threads",
                self.max_total_threads,
                1,
                Self::CEILING.max_total_threads,
            ),
        ];
        for (name, value, least, most) in bounds {
            if !(least..=most).contains(&value) {
                return Err(format!("{name} is {value}; it must be {least} to {most}"));
            }
        }
        Ok(())
    }
}

/// A change of limits. A field that is `None` keeps its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitsChange {
    /// See [`Limits::max_depth`].
    pub max_depth: Option<u32>,
    /// See [`Limits::max_threads`].
    pub max_threads: Option<u32>,
    /// See [`Limits::max_open_threads`].
    pub max_open_threads: Option<u32>,
    /// See [`Limits::max_total_threads`].
    pub max_total_threads: Option<u32>,
}

impl LimitsChange {
    /// Returns the limits with this change applied.
    #[must_use]
    pub fn over(self, present: Limits) -> Limits {
        Limits {
            max_depth: self.max_depth.unwrap_or(present.max_depth),
            max_threads: self.max_threads.unwrap_or(present.max_threads),
            max_open_threads: self.max_open_threads.unwrap_or(present.max_open_threads),
            max_total_threads: self.max_total_threads.unwrap_or(present.max_total_threads),
        }
    }
}

/// A budget. A field that is `None` is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Input and output tokens.
    pub tokens: Option<u64>,
    /// Turns.
    pub turns: Option<u32>,
    /// Time spent in running turns.
    pub wall_time: Option<Duration>,
    /// Cost, in millionths of the session's currency.
    pub cost: Option<u64>,
}

/// A currency, as an ISO 4217 code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Currency([u8; 3]);

impl Currency {
    /// US dollars, the currency in which agent programs report costs.
    pub const USD: Self = Self(*b"USD");

    /// Parses a code of three capital letters.
    ///
    /// # Errors
    /// A sentence that names the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        match <[u8; 3]>::try_from(text.as_bytes()) {
            Ok(code) if code.iter().all(u8::is_ascii_uppercase) => Ok(Self(code)),
            Ok(_) | Err(_) => Err(format!(
                "the currency is {text:?}; it must be a code of three capital letters, such as USD"
            )),
        }
    }

    /// Returns the code.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// The price of a model, in millionths of a currency per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price {
    /// Input tokens that were not read from a cache.
    pub input: u64,
    /// Input tokens that were read from a cache.
    pub cached_input: u64,
    /// Output tokens.
    pub output: u64,
}

impl Price {
    /// Returns the cost of the tokens of a usage, in millionths of the currency, rounded up.
    #[must_use]
    pub fn of(&self, usage: &Usage) -> u64 {
        let uncached = usage.input_tokens.saturating_sub(usage.cached_input_tokens);
        let parts = [
            (uncached, self.input),
            (usage.cached_input_tokens, self.cached_input),
            (usage.output_tokens, self.output),
        ];
        let product = |(tokens, price)| u128::from(tokens).saturating_mul(u128::from(price));
        let total = parts.into_iter().map(product).fold(0, u128::saturating_add);
        u64::try_from(total.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

/// The rule that detects stalled threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallRule {
    /// Number of consecutive completed turns with the same output. Zero disables the comparison.
    pub repeats: u32,
    /// Maximum time without a report from a running turn. Zero disables the check.
    pub silence: Duration,
}

impl Default for StallRule {
    fn default() -> Self {
        Self {
            repeats: 3,
            silence: Duration::from_secs(10 * 60),
        }
    }
}

impl StallRule {
    /// Maximum value of `silence` that can be configured.
    pub const MAX_SILENCE: Duration = Duration::from_secs(24 * 60 * 60);

    /// Checks a configured rule.
    ///
    /// # Errors
    /// A sentence that names the number, its value and its bounds.
    pub fn check(&self) -> Result<(), String> {
        if self.repeats == 1 {
            return Err(String::from(
                "stall_repeats is 1, which would mark every turn as stalled; it must be 0 (off) or at least 2",
            ));
        }
        if self.silence > Self::MAX_SILENCE {
            return Err(format!(
                "stall_after is {} s; it must be 0 (off) to {} s",
                self.silence.as_secs(),
                Self::MAX_SILENCE.as_secs()
            ));
        }
        Ok(())
    }
}

/// The used resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Input tokens, including cached tokens.
    pub input_tokens: u64,
    /// Input tokens that were read from a cache.
    pub cached_input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Ended turns.
    pub turns: u32,
    /// Time spent in running turns.
    pub wall_time: Duration,
    /// The known cost, in millionths of the session's currency. May decrease, because the cost that a program reports
    /// replaces the cost from the price list.
    pub cost: u64,
    /// Tokens whose cost is unknown. They are not part of `cost`. May decrease, because a cost that a program reports
    /// covers them too.
    pub unpriced_tokens: u64,
}

impl Usage {
    /// Returns the sum of two usages.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            cached_input_tokens: self.cached_input_tokens.saturating_add(other.cached_input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            turns: self.turns.saturating_add(other.turns),
            wall_time: self.wall_time.saturating_add(other.wall_time),
            cost: self.cost.saturating_add(other.cost),
            unpriced_tokens: self.unpriced_tokens.saturating_add(other.unpriced_tokens),
        }
    }

    /// Returns the estimated usage of `all` parts, if this is the usage of `some` of the parts.
    #[must_use]
    pub fn scaled(self, all: u32, some: NonZeroU32) -> Self {
        let scaled = |value: u64| u64::try_from(u128::from(value) * u128::from(all) / u128::from(some.get()));
        let scaled = |value| scaled(value).unwrap_or(u64::MAX);
        Self {
            input_tokens: scaled(self.input_tokens),
            cached_input_tokens: scaled(self.cached_input_tokens),
            output_tokens: scaled(self.output_tokens),
            turns: u32::try_from(scaled(u64::from(self.turns))).unwrap_or(u32::MAX),
            wall_time: self.wall_time.saturating_mul(all) / some.get(),
            cost: scaled(self.cost),
            unpriced_tokens: scaled(self.unpriced_tokens),
        }
    }

    /// Returns the usage after a newer reading: counters never decrease, and the newer values of `cost` and
    /// `unpriced_tokens` apply.
    #[must_use]
    pub const fn updated(self, newer: Self) -> Self {
        Self {
            cost: newer.cost,
            unpriced_tokens: newer.unpriced_tokens,
            ..self.plus(newer.since(self))
        }
    }

    /// Returns this sum with one of its parts changed from `before` to `after`.
    #[must_use]
    pub const fn with_part(self, before: Self, after: Self) -> Self {
        Self {
            cost: self.cost.saturating_sub(before.cost).saturating_add(after.cost),
            unpriced_tokens: self
                .unpriced_tokens
                .saturating_sub(before.unpriced_tokens)
                .saturating_add(after.unpriced_tokens),
            ..self.plus(after.since(before))
        }
    }

    /// Returns the sum of input and output tokens.
    #[must_use]
    pub const fn tokens(self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// Returns the increase since `earlier` for each field. The increase of a field that decreased is zero.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_sub(earlier.input_tokens),
            cached_input_tokens: self.cached_input_tokens.saturating_sub(earlier.cached_input_tokens),
            output_tokens: self.output_tokens.saturating_sub(earlier.output_tokens),
            turns: self.turns.saturating_sub(earlier.turns),
            wall_time: self.wall_time.saturating_sub(earlier.wall_time),
            cost: self.cost.saturating_sub(earlier.cost),
            unpriced_tokens: self.unpriced_tokens.saturating_sub(earlier.unpriced_tokens),
        }
    }
}

/// The kind of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotificationKind {
    /// A spawned thread that is not in focus completed a turn.
    AgentTurnComplete,
    /// A spawned thread settled.
    SubAgentComplete,
    /// An approval is pending.
    ApprovalRequested,
    /// A thread stalled.
    Stalled,
    /// A budget is exhausted.
    BudgetExhausted,
    /// A runner was lost.
    RunnerLost,
    /// An agent asked its parent a question.
    InputRequested,
}

impl NotificationKind {
    /// Returns the name that is sent to webhooks.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AgentTurnComplete => "agent-turn-complete",
            Self::SubAgentComplete => "sub-agent-complete",
            Self::ApprovalRequested => "approval-requested",
            Self::Stalled => "stalled",
            Self::BudgetExhausted => "budget-exhausted",
            Self::RunnerLost => "runner-lost",
            Self::InputRequested => "input-requested",
        }
    }
}

/// A webhook that receives notifications.
#[derive(Clone, PartialEq, Eq)]
pub struct Webhook {
    /// The URL that receives the notifications.
    pub url: String,
    /// The kinds to send. Empty selects all kinds.
    pub kinds: Vec<NotificationKind>,
    /// The key that signs the notifications.
    pub secret: String,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook")
            .field("url", &self.url)
            .field("kinds", &self.kinds)
            .finish_non_exhaustive()
    }
}

/// The settings of a session. SessionUpdated can change some of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The project directory. Empty means no project.
    pub cwd: String,
    /// The digest of the bundle that contains the session's templates. Empty means no bundle.
    pub workspace_digest: String,
    /// The bundle itself. It is stored with the session, so that it can be sent to a registry that lost it. `None`
    /// means no bundle.
    pub workspace: Option<ContentRef>,
    /// Bounds of the tree.
    pub limits: Limits,
    /// The event that frees a slot.
    pub slot_release: SlotRelease,
    /// The budget of the session.
    pub budget: Budget,
    /// The mode of the session.
    pub mode: Mode,
    /// The orchestration mode.
    pub orchestration: Orchestration,
    /// The maximum edge management of graph threads.
    pub edge_management: EdgeManagement,
    /// Graph templates whose threads are orchestrators, regardless of their declarations and their author.
    pub orchestrators: Vec<String>,
    /// Whether orchestrators need approvals too.
    pub approve_orchestrators: bool,
    /// The parts of prompts that are stored.
    pub prompt_log: PromptLog,
    /// The parts of transcripts that are stored.
    pub transcript: TranscriptLog,
    /// The time for a decision on an approval. Zero means no limit.
    pub approval_timeout: Duration,
    /// The action for an approval that is not decided in that time.
    pub on_approval_timeout: ApprovalTimeoutAction,
    /// The behavior when a thread's runner is lost.
    pub restart_policy: RestartPolicy,
    /// The maximum permissions of a child.
    pub policy_inheritance: Inheritance,
    /// The tools that the threads may use at most. `None` allows all tools.
    pub tool_ceiling: Option<Layer>,
    /// Patterns of tools whose calls need an approval.
    pub approve_tools: Vec<String>,
    /// Receivers of notifications.
    pub webhooks: Vec<Webhook>,
    /// Free labels.
    pub labels: BTreeMap<String, String>,
    /// Labels that a runner must have to receive the session's threads.
    pub runner_labels: BTreeMap<String, String>,
    /// The stall rule of the session: the service's rule when the session was opened.
    pub stall: StallRule,
    /// Time for which a closed session is kept. `None` keeps it until it is deleted.
    pub retention: Option<Duration>,
    /// The currency of all costs.
    pub currency: Currency,
}

impl Settings {
    /// Returns the time at which an approval that is requested now is denied. `None`: never.
    #[must_use]
    pub fn approval_deadline(&self, now: UnixMillis) -> Option<UnixMillis> {
        let is_limited = !self.approval_timeout.is_zero() && self.on_approval_timeout == ApprovalTimeoutAction::Deny;
        is_limited.then(|| now.plus(self.approval_timeout))
    }
}

/// Returns the policy that allows exactly the tools that need no approval.
///
/// # Errors
/// A malformed pattern, or too many patterns.
pub fn approval_gate(patterns: &[String]) -> Result<Policy, PolicyError> {
    if patterns.is_empty() {
        return Ok(Policy::unrestricted());
    }
    Policy::compile(vec![Layer {
        origin: String::from("approve_tools"),
        mode: MatchMode::Glob,
        allow: Vec::new(),
        deny: patterns.to_vec(),
    }])
}
