//! Who causes an event.

use std::{fmt, str::FromStr};

use super::ids::{Generation, RunnerId, ThreadId};

/// Who caused an event, as the log says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actor {
    /// A person or a program with an operator's token, by name.
    Operator(String),
    /// A thread, with its own token.
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

/// A text that names no actor.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` names no actor")]
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

/// Who calls, as far as the rules care.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// May do everything in every session.
    Operator {
        /// The operator's name.
        name: String,
    },
    /// May act on itself and its descendants, under its tool policy.
    Thread {
        /// The thread.
        id: ThreadId,
        /// The attempt that the token was minted for.
        generation: Generation,
    },
}

impl Caller {
    /// The caller as the log names it.
    #[must_use]
    pub fn actor(&self) -> Actor {
        match self {
            Self::Operator { name } => Actor::Operator(name.clone()),
            Self::Thread { id, .. } => Actor::Thread(*id),
        }
    }

    /// The thread that calls, if one does.
    #[must_use]
    pub const fn thread(&self) -> Option<ThreadId> {
        match self {
            Self::Operator { .. } => None,
            Self::Thread { id, .. } => Some(*id),
        }
    }
}
