//! Identifiers and counters. Each is a separate type, so that they cannot be confused.

use std::{cmp::Ordering, fmt, num::ParseIntError, str::FromStr, sync::Arc};

use base16ct::lower;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

macro_rules! uuid_ids {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {$(
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(Uuid);

        // Compares the ids as integers, in the order of their bytes. Each step of a map lookup compares ids, and a call
        // of memcmp costs more than this comparison.
        impl Ord for $name {
            fn cmp(&self, other: &Self) -> Ordering {
                self.0.as_u128().cmp(&other.0.as_u128())
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl $name {
            /// Creates an id from a UUID.
            #[must_use]
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// Returns the UUID.
            #[must_use]
            pub const fn as_uuid(self) -> Uuid {
                self.0
            }
        }

        impl From<Uuid> for $name {
            fn from(uuid: Uuid) -> Self {
                Self(uuid)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            /// Accepts only the hyphenated form of 36 characters, so that each id has one spelling.
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let uuid = Uuid::try_parse(text)?;
                if text.len() == 36 { Ok(Self(uuid)) } else { Uuid::try_parse("").map(Self) }
            }
        }
    )+};
}

uuid_ids! {
    /// A session: one root thread and its tree.
    SessionId,
    /// A thread: one agent, active or passive.
    ThreadId,
    /// An edge between two threads.
    EdgeId,
    /// An approval.
    ApprovalId,
    /// An artifact of a thread.
    ArtifactId,
    /// A handoff.
    HandoffId,
    /// A group of spawns.
    GroupId,
    /// A call that waits for threads.
    WaitId,
    /// A process that uses the log. Each start has a new id.
    MemberId,
}

impl ThreadId {
    /// An id that no thread has.
    pub const NIL: Self = Self(Uuid::nil());
}

macro_rules! numbers {
    ($($(#[doc = $doc:literal])+ $name:ident($inner:ty),)+) => {$(
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($inner);

        impl $name {
            /// The value before the first number.
            pub const ZERO: Self = Self(0);

            /// Creates a number from its integer value.
            #[must_use]
            pub const fn new(value: $inner) -> Self {
                Self(value)
            }

            /// Returns the integer value.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }

            /// Returns the next number.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIntError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }
    )+};
}

numbers! {
    /// The number of an event in its session. The first event is 1, and each event adds 1.
    Sequence(u64),
    /// The fencing token of a session's owner. The store rejects appends with an older epoch.
    Epoch(u64),
    /// The number of an attempt at executing a thread. Starts at 1 and increases with each re-placement, close and
    /// resume.
    Generation(u32),
    /// The number of a turn in its thread, counted from 1. 0 stands for a turn that never started.
    Turn(u32),
    /// The number of an input in its thread, counted from 1.
    InputNumber(u32),
    /// The number of a runner's report in a generation, counted from 1. 0 means that no report exists.
    ReportSequence(u64),
}

/// The name of a runner, stable across restarts. Cheap to clone, because the runner's threads share the text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunnerId(Arc<str>);

impl RunnerId {
    /// Creates a runner name from a text. The API validates the length and characters.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A SHA-256 digest of content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Computes the digest of the bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Creates a digest from its 32 bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = [0; 64];
        f.write_str(lower::encode_str(&self.0, &mut digits).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// The error for a text that is not 64 lower-case hexadecimal digits.
#[derive(Debug, thiserror::Error)]
#[error("a digest is 64 lower-case hexadecimal digits")]
pub struct BadDigest;

impl FromStr for Digest {
    type Err = BadDigest;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 32];
        match lower::decode(text, &mut bytes) {
            Ok(decoded) if decoded.len() == 32 => Ok(Self(bytes)),
            Ok(_) | Err(_) => Err(BadDigest),
        }
    }
}
