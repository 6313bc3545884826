//! Rules that decide which tools a thread may use.
//!
//! One module for each concept:
//!
//! - `pattern`: matches a pattern against a tool name, and limits the size of a pattern;
//! - `layer`: the allow list and the deny list of one origin, as written to the log and to the wire;
//! - `compiled`: a layer in compiled form, shared by all holders of an equal layer;
//! - `policy`: a combination of layers; a tool is allowed if every layer allows it;
//! - `decision`: the result, and how a user can resolve a denial;
//! - `grant`: the permissions of a child, derived from its parent's grant. Permissions only shrink;
//! - `canonical`: maps the tools of agent programs to the names that patterns use;
//! - `effect`: the side effects of a canonical tool;
//! - `rpc`: the tools that correspond to supervisor RPCs.
//!
//! Policies are compared and combined by their decisions on concrete tool names, never by the texts of their patterns:
//! `mcp*` and `mcp__a` together allow exactly `mcp__a`.
//!
//! This crate has no dialects (the registry turns templates into layers), no API messages, no I/O and no clock. It
//! does not depend on sessions or threads.
#![forbid(unsafe_code)]

mod canonical;
mod capability;
mod compiled;
mod decision;
mod effect;
mod grant;
mod layer;
mod pattern;
mod policy;
mod rpc;

pub use canonical::{ANSWER_TOOLS, CANONICAL_TOOLS, NativeTools, OWN_SERVER_PREFIX, known_tools};
pub use capability::{GatedTools, locked_tools};
pub use decision::{Decision, DeniedBy};
pub use effect::Effect;
pub use grant::{Inheritance, Rights};
pub use layer::{Layer, ListKind, MAX_PATTERNS, PolicyError};
pub use pattern::{MAX_PATTERN_BYTES, MatchMode, Pattern, PatternError};
pub use policy::Policy;
pub use rpc::{ToolRefused, tools_of_rpc};
