//! The result of a policy decision, and how a user can resolve a denial.

use std::fmt;

/// Whether a tool may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Every layer allows it.
    Allowed,
    /// At least one layer denies it; the first one is named.
    Denied {
        /// The layer's origin.
        origin: String,
        /// The part of the layer that denies it.
        cause: DeniedBy,
    },
}

/// The part of a layer that denies a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeniedBy {
    /// This pattern of the deny list covers the tool.
    DenyList(String),
    /// There is an allow list, and no pattern of it covers the tool.
    NotInAllowList,
    /// The native tool has no canonical name. The layer restricts tools, and no allow list of the layer covers the
    /// tool.
    UnknownTool,
}

impl Decision {
    /// Returns whether the tool is allowed.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed)
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allowed => f.write_str("allowed"),
            Self::Denied { origin, cause } => write!(f, "denied by {origin}: {cause}"),
        }
    }
}

impl fmt::Display for DeniedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DenyList(pattern) => {
                write!(
                    f,
                    "its deny_list has \"{pattern}\"; remove or narrow that pattern to allow the tool"
                )
            }
            Self::NotInAllowList => {
                f.write_str("its allowed tools do not include the tool; add the tool to them to allow it")
            }
            Self::UnknownTool => f.write_str(
                "the tool has no canonical name and the layer restricts tools; add the tool to the layer's allow_list",
            ),
        }
    }
}
