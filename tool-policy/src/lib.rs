//! Which tool a thread may use.
//!
//! Here live the rules, one noun a file:
//!
//! - `pattern`: how one pattern matches one tool name, and the bounds of a pattern;
//! - `layer`: an allow list and a deny list of one origin, as they are written to the log and to the wire;
//! - `compiled`: a layer ready to decide, shared by all who have the same;
//! - `policy`: layers joined; a tool is allowed if every layer allows it;
//! - `decision`: the answer, and what a user can do about a no;
//! - `grant`: what a child may hold, given what its parent grants. Rights only shrink;
//! - `canonical`: the tools of agent programs under the names that patterns use;
//! - `effect`: what such a tool does to the world;
//! - `rpc`: the tools that calls of the supervisor stand for.
//!
//! Policies are compared and joined by what they say about a concrete tool name, never by the texts of their patterns:
//! `mcp*` and `mcp__a` together allow exactly `mcp__a`.
//!
//! Here live no dialects (the registry turns templates into layers), no messages of the API, no I/O, no clock, and
//! nothing that knows a session or a thread.
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

pub use canonical::{CANONICAL_TOOLS, NativeTools, OWN_SERVER_PREFIX};
pub use capability::{GatedTools, locked_tools};
pub use decision::{Decision, DeniedBy};
pub use effect::Effect;
pub use grant::{Inheritance, Rights};
pub use layer::{Layer, ListKind, MAX_PATTERNS, PolicyError};
pub use pattern::{MAX_PATTERN_BYTES, MatchMode, Pattern, PatternError};
pub use policy::Policy;
pub use rpc::{ToolRefusal, ToolRefused, tools_of_rpc};
