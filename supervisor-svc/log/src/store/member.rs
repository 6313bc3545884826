//! Members: the processes that share one log, and the ownership of sessions.

use supervisor_core::ids::Epoch;
pub use supervisor_core::ids::MemberId;

/// The properties of a process that joins the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMember {
    /// Its name, stable across restarts. An older member with the same name is removed.
    pub name: String,
    /// The URL at which the other members reach it.
    pub address: String,
    /// The release of the program that it runs.
    pub release: String,
}

/// The state of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// The member takes over sessions.
    Active = 1,
    /// The member hands its sessions over and takes over no sessions.
    Leaving = 2,
}

/// A member's report about itself. Members report regularly to show that they are alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Its state.
    pub state: MemberState,
    /// The number of sessions in its memory.
    pub sessions: u64,
    /// The number of attached runners.
    pub runners: u64,
}

/// A process that shares the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its identity.
    pub id: MemberId,
    /// Its properties.
    pub info: NewMember,
    /// Its last report.
    pub last: Beat,
    /// The number of its beats. Increases with each beat.
    pub beats: u64,
}

/// The database of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseInfo {
    /// Name and version.
    pub engine: String,
    /// The configured synchronous standbys that commits wait for. Empty if there are none.
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
