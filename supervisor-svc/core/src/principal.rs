//! Actors: the originators of events.

use std::{fmt, str::FromStr};

use crate::ids::{Generation, RunnerId, ThreadId};

/// The originator of an event, as recorded in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actor {
    /// A person or a program with an operator token, identified by name.
    Operator(String),
    /// A thread, authenticated by its own token.
    Thread(ThreadId),
    /// A runner.
    Runner(RunnerId),
    /// The supervisor itself.
    Service,
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator(name) => write!(f, "operator:{name}"),
            Self::Thread(id) => write!(f, "thread:{id}"),
            Self::Runner(id) => write!(f, "runner:{id}"),
            Self::Service => f.write_str("service"),
        }
    }
}

/// The error for a text that does not name an actor.
#[derive(Debug, thiserror::Error)]
#[error("\"{0}\" is not an actor")]
pub struct UnknownActor(String);

impl FromStr for Actor {
    type Err = UnknownActor;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownActor(text.to_owned());
        if text == "service" {
            Ok(Self::Service)
        } else if let Some(id) = text.strip_prefix("runner:") {
            Ok(Self::Runner(RunnerId::new(id)))
        } else if let Some(id) = text.strip_prefix("thread:") {
            id.parse().map(Self::Thread).map_err(|_| unknown())
        } else if let Some(name) = text.strip_prefix("operator:") {
            Ok(Self::Operator(name.to_owned()))
        } else {
            Err(unknown())
        }
    }
}

/// The authenticated caller, with the fields that the rules need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// An operator. Has full access to every session.
    Operator {
        /// The operator's name.
        name: String,
    },
    /// A thread. Acts on itself and its descendants, within its tool policy.
    Thread {
        /// The thread.
        id: ThreadId,
        /// The generation for which the token was minted.
        generation: Generation,
    },
}

impl Caller {
    /// Returns the caller as an [`Actor`] of the log.
    #[must_use]
    pub fn actor(&self) -> Actor {
        match self {
            Self::Operator { name } => Actor::Operator(name.clone()),
            Self::Thread { id, .. } => Actor::Thread(*id),
        }
    }

    /// Returns the calling thread. `None` for operators.
    #[must_use]
    pub const fn thread(&self) -> Option<ThreadId> {
        match self {
            Self::Operator { .. } => None,
            Self::Thread { id, .. } => Some(*id),
        }
    }
}
