//! The sandbox of a spawned thread.

/// The changes that an agent may make outside its own conversation, ordered from strict to loose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sandbox {
    /// No write outside a private scratch directory, no network for tools.
    ReadOnly,
    /// Writes inside the working directory.
    WorkspaceWrite,
    /// No restriction by the sandbox.
    FullAccess,
}

impl Sandbox {
    /// The sandbox that applies if the parent passes none on.
    pub const DEFAULT: Self = Self::WorkspaceWrite;

    /// Returns the sandbox of a child whose parent has this sandbox. A template can only tighten it.
    #[must_use]
    pub const fn under_template(self, read_only: bool) -> Self {
        if read_only { Self::ReadOnly } else { self }
    }

    /// Returns the name, for digests and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read_only",
            Self::WorkspaceWrite => "workspace_write",
            Self::FullAccess => "full_access",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_only_tightens_sandbox() {
        for parent in [Sandbox::ReadOnly, Sandbox::WorkspaceWrite, Sandbox::FullAccess] {
            assert_eq!(parent.under_template(true), Sandbox::ReadOnly);
            assert_eq!(parent.under_template(false), parent);
        }
    }
}
