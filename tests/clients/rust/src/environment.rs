//! The variables of the environment for the pair.

use std::env;

/// The addresses of the pair and the caller's token.
#[derive(Clone)]
pub struct Environment {
    /// The registry's host:port.
    pub registry: String,
    /// The supervisor's host:port.
    pub supervisor: String,
    /// The caller's token. An empty token is not sent.
    pub token: String,
    /// A directory within the pair's workspace roots; empty for none.
    pub project: String,
}

impl Environment {
    /// Reads the TROUPE_ variables. By default, the pair is on this machine's default ports.
    pub fn read() -> Self {
        Self {
            registry: variable("TROUPE_REGISTRY", "127.0.0.1:50051"),
            supervisor: variable("TROUPE_SUPERVISOR", "127.0.0.1:50052"),
            token: variable("TROUPE_TOKEN", ""),
            project: variable("TROUPE_PROJECT", ""),
        }
    }
}

fn variable(name: &str, otherwise: &str) -> String {
    env::var(name).unwrap_or_else(|_| otherwise.to_owned())
}
