//! The services of Troupe.

use std::fmt;

/// A service of Troupe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The supervisor.
    Supervisor,
    /// The registry.
    Registry,
}

impl Service {
    /// Returns the default port.
    #[must_use]
    pub const fn port(self) -> u16 {
        match self {
            Self::Supervisor => 50_052,
            Self::Registry => 50_051,
        }
    }

    /// Returns the URL on this machine with the default port.
    #[must_use]
    pub fn default_url(self) -> String {
        format!("http://127.0.0.1:{}", self.port())
    }
}

impl fmt::Display for Service {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Supervisor => "supervisor",
            Self::Registry => "registry",
        })
    }
}
