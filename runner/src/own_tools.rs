//! An agent program's own tools that a thread may be offered.

use tool_policy::{NativeTools, Policy};
use troupe_proto::common::v1::Sandbox;

/// One of a program's own tools.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnTool {
    pub(crate) name: &'static str,
    pub(crate) effect: Effect,
    /// Names of other tools with the same effect. The policy must allow all of them.
    pub(crate) alike: &'static [&'static str],
}

/// The effect of a tool outside of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Reads files, or changes nothing outside of the program.
    Reads,
    /// Writes files. Not available to a read-only thread.
    Writes,
    /// Runs a command or uses the network. Not available to a read-only thread: the program and its tools share one
    /// network, so the network cannot be denied to the tool alone.
    External,
}

pub(crate) const fn reads(name: &'static str) -> OwnTool {
    OwnTool {
        name,
        effect: Effect::Reads,
        alike: &[],
    }
}

pub(crate) const fn external(name: &'static str) -> OwnTool {
    OwnTool {
        name,
        effect: Effect::External,
        alike: &[],
    }
}

/// Returns a writing tool that is allowed only if the tools in `alike` are allowed as well.
pub(crate) const fn writes(name: &'static str, alike: &'static [&'static str]) -> OwnTool {
    OwnTool {
        name,
        effect: Effect::Writes,
        alike,
    }
}

/// All of a program's own tools that a thread may be offered, and their names in policies. This is an allowlist: tools
/// of later releases are not offered.
pub(crate) struct OwnTools(pub(crate) NativeTools, pub(crate) &'static [OwnTool]);

impl OwnTools {
    /// Returns the tools that a thread is offered.
    pub(crate) fn offered(&self, policy: &Policy, access: Sandbox) -> Vec<OwnTool> {
        self.allowed(policy, |effect| effect == Effect::Reads || access != Sandbox::ReadOnly)
    }

    /// Returns the names of the tools that the policy allows but that are withheld because of their network access.
    pub(crate) fn withheld(&self, policy: &Policy, access: Sandbox) -> Vec<&'static str> {
        let withheld = self.allowed(policy, |effect| {
            effect == Effect::External && access == Sandbox::ReadOnly
        });
        withheld.iter().map(|own| own.name).collect()
    }

    fn allowed(&self, policy: &Policy, fits: impl Fn(Effect) -> bool) -> Vec<OwnTool> {
        let Self(native, all) = self;
        let allows = |name: &str| policy.decide_native(native, name).is_allowed();
        let may = |own: &&OwnTool| fits(own.effect) && allows(own.name) && own.alike.iter().all(|name| allows(name));
        all.iter().filter(may).copied().collect()
    }
}
