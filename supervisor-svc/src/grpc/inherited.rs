//! What a parent hands down to a child whose role has no words of its own, or whose words follow the parent's.

use std::sync::Arc;

use svc_kit::memo::{Memo, MemoLimits};
use troupe_proto::{
    common::v1::{BlockKind, ResolvedSpawn},
    registry::v1::ResolveSpawnRequest,
};

use super::{
    SupervisorService,
    call::Call,
    resolved::Resolved,
    spawn::{Unspawnable, resolve},
};
use crate::{
    domain::{
        event::Role,
        ids::{Digest, SessionId},
        session::Session,
        thread::Thread,
    },
    session::Failure,
};

const LIMITS: MemoLimits = MemoLimits {
    entries: 256,
    bytes: 8 * 1024 * 1024,
    entry_bytes: 256 * 1024,
};

/// What the agents of resolved roles read as their role, by the digests of the resolutions.
#[derive(Debug)]
pub(super) struct Instructions(Memo<Digest, Arc<str>>);

impl Default for Instructions {
    fn default() -> Self {
        Self(Memo::new(LIMITS))
    }
}

impl SupervisorService {
    /// Asks the registry for a child of that parent: about what the question says, and once more with the parent's
    /// instructions only if the answer depends on them. So a role with words of its own costs neither a reading of the
    /// parent's nor a question that is as long as they are.
    pub(super) async fn resolve_below(
        &self,
        call: &Call,
        session: &Session,
        parent: &Thread,
        mut question: ResolveSpawnRequest,
    ) -> Result<Resolved, Unspawnable> {
        let registry = self.registry_for(session);
        let resolved = resolve(&registry, call, question.clone()).await?;
        if !resolved.inherits_instructions {
            return Ok(resolved);
        }
        let instructions = self
            .instructions_of(session.id, &parent.spawned.role)
            .await
            .map_err(|failure| Unspawnable::Unknown(failure.into()))?;
        if instructions.trim().is_empty() {
            return Ok(resolved);
        }
        question.inherited.get_or_insert_default().instructions = String::from(&*instructions);
        resolve(&registry, call, question).await
    }

    /// The role block of a thread, as its spawn left it. Empty: it has none.
    async fn instructions_of(&self, session: SessionId, role: &Role) -> Result<Arc<str>, Failure> {
        let Some(content) = &role.resolved else {
            return Ok(Arc::default());
        };
        let Instructions(known) = &*self.instructions;
        if let Some(text) = known.get(&content.digest, |text| Some(Arc::clone(text))) {
            return Ok(text);
        }
        let resolved: ResolvedSpawn = self.directory.context().message(session, content).await?;
        let block = resolved.blocks.iter().find(|block| block.kind() == BlockKind::Role);
        let text: Arc<str> = block.map(|block| block.text.as_str()).unwrap_or_default().into();
        known.keep(content.digest, Arc::clone(&text), text.len());
        Ok(text)
    }
}
