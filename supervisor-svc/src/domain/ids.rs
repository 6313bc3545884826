//! Names and numbers, each its own type so that none is taken for another.

use std::{cmp::Ordering, fmt, num::ParseIntError, str::FromStr, sync::Arc};

use base16ct::lower;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

macro_rules! uuid_id {
    ($(#[doc = $doc:literal])+ $name:ident) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(Uuid);

        // The order of the bytes, as two numbers: every step in a map of a session compares, and a call of memcmp costs
        // more than the comparison.
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
            /// Takes a UUID for what it names.
            #[must_use]
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// The UUID.
            #[must_use]
            pub const fn as_uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            /// Accepts the hyphenated form of 36 characters only, so that an id has one spelling.
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let uuid = Uuid::try_parse(text)?;
                if text.len() == 36 { Ok(Self(uuid)) } else { Uuid::try_parse("").map(Self) }
            }
        }
    };
}

uuid_id!(
    /// One root thread and the tree under it.
    SessionId
);
uuid_id!(
    /// One agent at work or at rest.
    ThreadId
);
uuid_id!(
    /// A way on which two threads may talk.
    EdgeId
);
uuid_id!(
    /// Something that waits for an operator.
    ApprovalId
);
uuid_id!(
    /// Something that a thread made.
    ArtifactId
);
uuid_id!(
    /// A message along an edge.
    HandoffId
);
uuid_id!(
    /// A call that waits for threads.
    WaitId
);

macro_rules! number {
    ($(#[doc = $doc:literal])+ $name:ident($inner:ty)) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($inner);

        impl $name {
            /// Before the first.
            pub const ZERO: Self = Self(0);

            /// Takes a number for what it counts.
            #[must_use]
            pub const fn new(value: $inner) -> Self {
                Self(value)
            }

            /// The number.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }

            /// The one after this.
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
    };
}

number!(
    /// The number of an event in its session: 1 for the first, + 1 for each.
    Sequence(u64)
);
number!(
    /// Which owner of a session may append: a writer with an older one is fenced off.
    Epoch(u64)
);
number!(
    /// The attempt at executing a thread: 1 at spawn, + 1 at each re-placement, close and resume.
    Generation(u32)
);
number!(
    /// The number of a turn in its thread, counted from 1; 0 stands for a turn that never began.
    Turn(u32)
);
number!(
    /// The number of an input in its thread, counted from 1.
    InputNumber(u32)
);
number!(
    /// The number of a runner's report in a generation, counted from 1; 0 stands for "nobody reported it".
    ReportSequence(u64)
);

/// The name of a runner, stable across its restarts. Cheap to clone: its threads share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunnerId(Arc<str>);

impl RunnerId {
    /// Takes a text for a runner's name. Its bounds are checked where it comes in.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name.
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

/// SHA-256 of some content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Takes 32 bytes for a digest.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes.
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

/// A text that is not 64 lower-case hexadecimal digits.
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
