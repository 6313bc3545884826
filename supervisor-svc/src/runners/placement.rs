//! Matching of threads and runners: the requirements of a thread and the offer of a runner.

use std::collections::BTreeMap;

use tonic::Code;
use tool_policy::Policy;
use troupe_proto::{fault::Fault, reason::Reason, supervisor::v1 as pb};

use crate::domain::{
    command::Spawn,
    decide::spawn::child_rights,
    ids::SessionId,
    rejection::Rejection,
    settings::{Sandbox, Settings},
    state::{session::Session, thread::Thread},
};

/// The requirements of a thread on a runner.
#[derive(Clone, Copy, Debug)]
pub struct Need<'s> {
    pub(super) session: SessionId,
    labels: &'s BTreeMap<String, String>,
    /// Whether the operating system must prevent writes.
    read_only: bool,
    /// Whether the runner must enforce a tool policy.
    restricted: bool,
}

impl<'s> Need<'s> {
    /// Returns the requirements of a thread with this sandbox and these tools.
    #[must_use]
    pub fn new(session: SessionId, settings: &'s Settings, sandbox: Sandbox, effective: &Policy) -> Self {
        Self {
            session,
            labels: &settings.runner_labels,
            read_only: sandbox == Sandbox::ReadOnly,
            restricted: !effective.is_unrestricted(),
        }
    }

    /// Returns the requirements of an existing thread of the session.
    #[must_use]
    pub fn of(session: &'s Session, thread: &Thread) -> Self {
        Self::new(session.id, &session.settings, thread.sandbox, &thread.effective)
    }

    /// Returns the requirements of the thread that a spawn will create.
    ///
    /// # Errors
    /// An invalid pattern in the role's lists.
    pub fn of_spawn(session: &'s Session, parent: &Thread, spawn: &Spawn) -> Result<Self, Rejection> {
        let effective = child_rights(session, parent, spawn)?.effective;
        let sandbox = spawn.spawned.sandbox.min(parent.sandbox);
        Ok(Self::new(session.id, &session.settings, sandbox, &effective))
    }
}

/// The properties that a runner declared when it attached.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    pub kinds: Vec<pb::RunnerKind>,
    pub labels: BTreeMap<String, String>,
    pub capacity: u32,
    pub session: Option<SessionId>,
    /// Whether the runner takes only threads of the session of its first thread, and ends after the last of them.
    pub is_single_use: bool,
}

impl Offer {
    /// Returns whether the runner accepts threads of this session and has the labels. Does not check what the
    /// runner can enforce. A runner for single use that has a session counts as full for others.
    pub fn is_for(&self, need: &Need<'_>) -> bool {
        let takes_session = self.is_single_use || self.session.is_none_or(|only| only == need.session);
        takes_session
            && need
                .labels
                .iter()
                .all(|(key, value)| self.labels.get(key) == Some(value))
    }

    /// Returns whether one of the runner's kinds can enforce all requirements.
    pub fn enforces(&self, need: &Need<'_>) -> bool {
        self.kinds
            .iter()
            .any(|kind| (!need.read_only || kind.enforces_read_only) && (!need.restricted || kind.enforces_tools))
    }
}

/// Checks that one of the runners, with or without a free slot, could enforce a thread's role. Succeeds if no runner is
/// attached, because there is no offer to check against.
pub(super) fn check_enforceable<'o>(attached: impl Iterator<Item = &'o Offer>, need: &Need<'_>) -> Result<(), Fault> {
    let offers: Vec<&Offer> = attached.filter(|offer| offer.is_for(need)).collect();
    if offers.is_empty() || offers.iter().any(|offer| offer.enforces(need)) {
        return Ok(());
    }
    let can = |ability: fn(&pb::RunnerKind) -> bool| offers.iter().any(|offer| offer.kinds.iter().any(ability));
    let wanted = [
        (
            need.read_only,
            "a READ_ONLY sandbox",
            can(|kind| kind.enforces_read_only),
        ),
        (need.restricted, "a tool policy", can(|kind| kind.enforces_tools)),
    ];
    let nowhere = wanted
        .iter()
        .filter(|(is_needed, _, is_offered)| *is_needed && !is_offered);
    let mut missing: Vec<&str> = nowhere.map(|(_, what, _)| *what).collect();
    if missing.is_empty() {
        // Each requirement is met by some program, but no program meets all of them.
        missing = vec!["a READ_ONLY sandbox together with a tool policy"];
    }
    let missing = missing.join(" and ");
    let text = format!(
        "no attached runner can hold the agent to its role, which needs {missing}; attach one that can, or spawn a \
         role that needs less"
    );
    Err(
        Fault::new(Code::FailedPrecondition, Reason::PolicyNotEnforceable, &text)
            .with("missing", &missing)
            .precondition("runner", text),
    )
}
