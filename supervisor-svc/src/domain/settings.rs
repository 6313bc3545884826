//! What binds a whole session: limits, policy, mode, labels.

use std::{collections::BTreeMap, time::Duration};

use tool_policy::{Inheritance, Layer};

use super::content::ContentRef;

/// How much an agent may change; ordered from strict to loose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sandbox {
    /// No write outside a scratch directory, no network for tools.
    ReadOnly,
    /// Writes inside the working directory.
    WorkspaceWrite,
    /// No restriction by the sandbox.
    FullAccess,
}

/// What the session is for at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Read-only except docs/.
    Planning,
    /// Code edits are allowed.
    #[default]
    Implementation,
}

/// Which edges a thread may manage; each includes the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum EdgeManagement {
    /// None.
    #[default]
    None,
    /// Those that it ends in.
    SelfOnly,
    /// All.
    All,
}

impl EdgeManagement {
    /// What these capabilities of a graph template allow, by the names that the registry reads it from. Other capabilities
    /// say nothing about edges.
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

    /// The name for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::SelfOnly => "self",
            Self::All => "all",
        }
    }
}

/// Who keeps the agents going.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Orchestration {
    /// Turns start when somebody asks for them.
    #[default]
    Interactive,
    /// An orchestrator is given another turn until it is done.
    Auto,
}

/// How much of the prompts is kept.
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

/// What happens to a thread whose runner is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestartPolicy {
    /// It is settled as ERRORED.
    #[default]
    Never,
    /// It is placed anew.
    OnLost,
}

/// What frees a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlotRelease {
    /// Settling.
    #[default]
    Settle,
    /// Closing only.
    Close,
}

/// How a running turn ends when its thread is closed; ordered from mild to strict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClosePolicy {
    /// Let the turn finish within the cascade's deadline.
    FinishTurn,
    /// Ask, then kill after the grace.
    #[default]
    Terminate,
    /// Kill at once.
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
    /// When it is settled and open, however.
    Always,
}

/// When a thread that is at work gets more input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Urgency {
    /// With its next turn.
    #[default]
    Wait,
    /// Within the running turn, if its program takes more in one; with the next turn otherwise.
    Steer,
    /// With its next turn, and the running one is stopped for it.
    Interrupt,
}

/// What to do when no slot is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLimit {
    /// Refuse.
    #[default]
    Refuse,
    /// Wait in the queue.
    Queue,
}

/// Bounds of a session's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The deepest thread; the root is 0.
    pub max_depth: u32,
    /// Active threads, the root not counted.
    pub max_threads: u32,
    /// Threads that are not closed, the root included.
    pub max_open_threads: u32,
    /// Threads that the session ever had, the root included.
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
    /// What no session may exceed, whatever the configuration says.
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

/// New limits, each by itself; `None` stays as it was.
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
    /// The limits after the change of these.
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

/// What may be spent; `None` is without bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Tokens, read and written.
    pub tokens: Option<u64>,
    /// Turns.
    pub turns: Option<u32>,
    /// Time in running turns.
    pub wall_time: Option<Duration>,
}

/// When a thread counts as stalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallRule {
    /// How many completed turns in a row with the same output; zero: outputs are not compared.
    pub repeats: u32,
    /// How long nothing is heard of a running turn; zero: silence is no sign.
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
    /// The longest silence that can be configured.
    pub const MAX_SILENCE: Duration = Duration::from_secs(24 * 60 * 60);

    /// Checks a configured rule.
    ///
    /// # Errors
    /// A sentence that names the number, its value and its bounds.
    pub fn check(&self) -> Result<(), String> {
        if self.repeats == 1 {
            return Err(String::from(
                "stall_repeats is 1, which every turn has; it must be 0 (off) or at least 2",
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

/// What was spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens read, cached ones included.
    pub input_tokens: u64,
    /// Of these, from a cache.
    pub cached_input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// Turns ended.
    pub turns: u32,
    /// Time in running turns.
    pub wall_time: Duration,
}

impl Usage {
    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            cached_input_tokens: self.cached_input_tokens.saturating_add(other.cached_input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            turns: self.turns.saturating_add(other.turns),
            wall_time: self.wall_time.saturating_add(other.wall_time),
        }
    }

    /// Tokens read and written.
    #[must_use]
    pub const fn tokens(self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// What this is more than `earlier`, field by field; a field that shrank counts as unchanged.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_sub(earlier.input_tokens),
            cached_input_tokens: self.cached_input_tokens.saturating_sub(earlier.cached_input_tokens),
            output_tokens: self.output_tokens.saturating_sub(earlier.output_tokens),
            turns: self.turns.saturating_sub(earlier.turns),
            wall_time: self.wall_time.saturating_sub(earlier.wall_time),
        }
    }
}

/// What a notification is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotificationKind {
    /// A spawned thread completed a turn that nobody was looking at.
    AgentTurnComplete,
    /// A spawned thread settled.
    SubAgentComplete,
    /// Something waits for an operator.
    ApprovalRequested,
    /// A thread stalled.
    Stalled,
    /// A budget is spent.
    BudgetExhausted,
    /// A runner was lost.
    RunnerLost,
}

impl NotificationKind {
    /// The name that webhooks are sent.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AgentTurnComplete => "agent-turn-complete",
            Self::SubAgentComplete => "sub-agent-complete",
            Self::ApprovalRequested => "approval-requested",
            Self::Stalled => "stalled",
            Self::BudgetExhausted => "budget-exhausted",
            Self::RunnerLost => "runner-lost",
        }
    }
}

/// A receiver of notifications.
#[derive(Clone, PartialEq, Eq)]
pub struct Webhook {
    /// Where they are sent.
    pub url: String,
    /// Which kinds; empty: all.
    pub kinds: Vec<NotificationKind>,
    /// The key that signs them.
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

/// Everything that was decided when the session was opened. What SessionUpdated may change is said there.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The project's directory; empty: no project.
    pub cwd: String,
    /// The bundle that stands for its templates; empty: none.
    pub workspace_digest: String,
    /// The bundle itself, kept with the session so that a registry that lost it can be given it again; `None`: there is
    /// none.
    pub workspace: Option<ContentRef>,
    /// Bounds of the tree.
    pub limits: Limits,
    /// What frees a slot.
    pub slot_release: SlotRelease,
    /// What the session may spend.
    pub budget: Budget,
    /// What it is for.
    pub mode: Mode,
    /// Who keeps its agents going.
    pub orchestration: Orchestration,
    /// Which edges graph threads may manage at most.
    pub edge_management: EdgeManagement,
    /// The graph templates whose threads are orchestrators, whatever they declare and whoever wrote them.
    pub orchestrators: Vec<String>,
    /// Whether orchestrators need an approval too.
    pub approve_orchestrators: bool,
    /// How much of the prompts is kept.
    pub prompt_log: PromptLog,
    /// What happens to threads whose runner is lost.
    pub restart_policy: RestartPolicy,
    /// What a child may be granted.
    pub policy_inheritance: Inheritance,
    /// The tools that no thread may exceed.
    pub tool_ceiling: Option<Layer>,
    /// Patterns of tools of which every call needs an operator.
    pub approve_tools: Vec<String>,
    /// Receivers of notifications.
    pub webhooks: Vec<Webhook>,
    /// Free labels.
    pub labels: BTreeMap<String, String>,
    /// Its threads are given only to runners that have all of these labels.
    pub runner_labels: BTreeMap<String, String>,
    /// When a thread of it counts as stalled: the service's rule when it was opened.
    pub stall: StallRule,
    /// How long a closed session is kept; `None`: until it is deleted.
    pub retention: Option<Duration>,
}
