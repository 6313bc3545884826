//! MCP annotations of the supervisor's tools.
//!
//! Clients use these hints to decide which calls need a confirmation. The supervisor alone decides whether a call is
//! permitted.

use rmcp::model::ToolAnnotations;

/// The hints of one tool. Every tool acts only on the agents of one session, so `openWorldHint` is false for all of
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hints {
    name: &'static str,
    title: &'static str,
    effect: Effect,
    /// Whether a second call with the same arguments has no further effect.
    is_idempotent: bool,
}

/// What a call can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// The call changes nothing.
    Reads,
    /// The call adds something.
    Adds,
    /// The call ends or replaces something.
    Destroys,
}

/// All tools of the supervisor. A tool that is not listed has no hints, and clients assume the worst.
const TOOLS: &[Hints] = &[
    Hints::of("list_agents", "List roles", Effect::Reads, true),
    Hints::of("list_active_agents", "List agents", Effect::Reads, true),
    Hints::of("read_transcript", "Read a transcript", Effect::Reads, true),
    Hints::of("wait", "Wait for agents", Effect::Reads, true),
    Hints::of("spawn_agent", "Spawn an agent", Effect::Adds, false),
    Hints::of("spawn_group", "Spawn a group of agents", Effect::Adds, false),
    Hints::of("spawn_node", "Spawn a graph node", Effect::Adds, false),
    // With `interrupt` the call stops a turn, but the same input continues the thread.
    Hints::of("send_input", "Send input to an agent", Effect::Adds, false),
    Hints::of("close_agent", "Close an agent and its subtree", Effect::Destroys, true),
    Hints::of("resume_agent", "Reopen an agent", Effect::Adds, true),
    Hints::of("set_thread_note", "Set a note on an agent", Effect::Adds, true),
    Hints::of("create_edge", "Create an edge", Effect::Adds, true),
    Hints::of("send_handoff", "Send a handoff", Effect::Adds, false),
    Hints::of("report_result", "Report the result", Effect::Adds, true),
    Hints::of("ask_parent", "Ask the parent", Effect::Adds, true),
];

impl Hints {
    const fn of(name: &'static str, title: &'static str, effect: Effect, is_idempotent: bool) -> Self {
        Self {
            name,
            title,
            effect,
            is_idempotent,
        }
    }
}

/// Returns the annotations of the tool with that name. `None`: the tool is not in the table.
pub(crate) fn annotations(tool: &str) -> Option<ToolAnnotations> {
    let hints = TOOLS.iter().find(|hints| hints.name == tool)?;
    Some(ToolAnnotations::from_raw(
        Some(hints.title.to_owned()),
        Some(hints.effect == Effect::Reads),
        Some(hints.effect == Effect::Destroys),
        Some(hints.is_idempotent),
        Some(false),
    ))
}
