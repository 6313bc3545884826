//! Capabilities of graph templates that unlock tools. A node has a high-risk tool only if its template declares the
//! capability for it.

/// A group of tools, and the capabilities that unlock it. One of them suffices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatedTools {
    /// The capabilities.
    pub capabilities: &'static [&'static str],
    /// The canonical tools.
    pub tools: &'static [&'static str],
}

/// The groups. A policy cannot distinguish code from documents, so either capability unlocks the tools that write
/// files.
const GATED: &[GatedTools] = &[
    GatedTools {
        capabilities: &["edit_code", "write_docs"],
        tools: &["apply_patch", "write_file", "delete_file"],
    },
    GatedTools {
        capabilities: &["run_commands"],
        tools: &["exec_command", "write_stdin"],
    },
];

/// Returns the groups that these capabilities do not unlock.
pub fn locked_tools(declared: &[String]) -> impl Iterator<Item = &'static GatedTools> {
    let is_locked = |group: &&GatedTools| !declared.iter().any(|name| group.capabilities.contains(&name.as_str()));
    GATED.iter().filter(is_locked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CANONICAL_TOOLS;

    #[test]
    fn gated_tools_are_canonical() {
        for tool in GATED.iter().flat_map(|group| group.tools) {
            assert!(CANONICAL_TOOLS.contains(tool), "{tool}");
        }
    }
}
