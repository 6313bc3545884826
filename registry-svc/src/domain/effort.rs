//! The closed list of reasoning efforts.

use std::fmt;

use serde::Deserialize;

/// A reasoning effort, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// No reasoning.
    None,
    /// Minimal reasoning.
    Minimal,
    /// Low effort.
    Low,
    /// Medium effort.
    Medium,
    /// High effort.
    High,
    /// The highest effort that the model supports.
    Xhigh,
}

impl Effort {
    /// Every effort, in ascending order.
    pub const ALL: &[Self] = &[
        Self::None,
        Self::Minimal,
        Self::Low,
        Self::Medium,
        Self::High,
        Self::Xhigh,
    ];

    /// Returns the name, as templates and the wire spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
        }
    }

    /// Parses an effort. Surrounding whitespace and case are ignored.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let name = text.trim().to_ascii_lowercase();
        Self::ALL.iter().copied().find(|effort| effort.as_str() == name)
    }
}

impl fmt::Display for Effort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effort_names_round_trip() {
        for effort in Effort::ALL {
            assert_eq!(Effort::parse(effort.as_str()), Some(*effort));
        }
        assert_eq!(Effort::parse(" HIGH "), Some(Effort::High));
        assert_eq!(Effort::parse(""), Option::None);
        assert_eq!(Effort::parse("extreme"), Option::None);
    }
}
