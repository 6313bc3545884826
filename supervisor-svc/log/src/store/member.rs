//! Members: the processes that share one log, and the ownership of sessions.

use supervisor_core::ids::Epoch;
pub use supervisor_core::ids::MemberId;

/// How a process introduces itself to the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMember {
    /// Its name, which it has again after a restart. An older member with the same name is removed.
    pub name: String,
    /// The URL at which the others reach it.
    pub address: String,
    /// The release of its program.
    pub release: String,
}

/// What a member does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// It takes over sessions.
    Active = 1,
    /// It hands its sessions over and takes over none.
    Leaving = 2,
}

/// What a member reports about itself with each beat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Its state.
    pub state: MemberState,
    /// The sessions in its memory.
    pub sessions: u64,
    /// The runners that are attached to it.
    pub runners: u64,
}

/// A process that shares the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its identity.
    pub id: MemberId,
    /// Its introduction.
    pub info: NewMember,
    /// Its last report.
    pub last: Beat,
    /// Grows with each beat.
    pub beats: u64,
}

/// The database of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseInfo {
    /// Name and version.
    pub engine: String,
    /// The synchronous standbys that it waits for, as configured. Empty without any.
    pub synchronous_standbys: String,
}

/// The result of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The session belongs to the claiming process, in this epoch.
    Granted(Epoch),
    /// The session belongs to another member. Nothing was changed.
    OwnedBy(MemberId),
}
