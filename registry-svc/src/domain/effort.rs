//! The closed list of reasoning efforts.

use std::fmt;

use serde::Deserialize;

/// How much a model thinks, from nothing to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// Not at all.
    None,
    /// Hardly.
    Minimal,
    /// A little.
    Low,
    /// The usual.
    Medium,
    /// A lot.
    High,
    /// As much as the model can.
    Xhigh,
}

impl Effort {
    /// Every effort, least first.
    pub const ALL: &[Self] = &[
        Self::None,
        Self::Minimal,
        Self::Low,
        Self::Medium,
        Self::High,
        Self::Xhigh,
    ];

    /// The name, as templates and the wire spell it.
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

    /// The effort of that name; surrounding space and case do not matter.
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
    fn every_effort_reads_what_it_writes() {
        for effort in Effort::ALL {
            assert_eq!(Effort::parse(effort.as_str()), Some(*effort));
        }
        assert_eq!(Effort::parse(" HIGH "), Some(Effort::High));
        assert_eq!(Effort::parse(""), Option::None);
        assert_eq!(Effort::parse("extreme"), Option::None);
    }
}
