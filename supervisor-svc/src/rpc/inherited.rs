//! Instructions that a child inherits from its parent. They apply if the child's role has no instructions, or if its
//! instructions follow the parent's.

use std::sync::Arc;

use svc_kit::memo::{Memo, MemoLimits};
use troupe_proto::{
    common::v1::{BlockKind, ResolvedSpawn},
    registry::v1::ResolveSpawnRequest,
};

use super::{SupervisorService, call::Call, resolved::Resolved, spawn::{Unspawnable, resolve}};
use crate::{domain::{event::Role, ids::{Digest, SessionId}, state::{session::Session, thread::Thread}}, engine::Failure};

const LIMITS: MemoLimits = MemoLimits {
    entries: 256,
    bytes: 8 * 1024 * 1024,
    entry_bytes: 256 * 1024,
};

/// Cache of the role instructions of resolved roles, by the digests of the resolutions.
#[derive(Debug)]
pub(super) struct Instructions(Memo<Digest, Arc<str>>);

impl Default for Instructions {
    fn default() -> Self {
        Self(Memo::new(LIMITS))
    }
}

impl SupervisorService {
    /// Resolves a spawn below the given parent. The first request omits the parent's instructions. A second request
    /// includes them only if the result depends on them. A role with its own instructions therefore costs neither a
    /// read of the parent's instructions nor a large request.
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

    /// Returns the role block that the thread's spawn recorded. Empty if there is no role block.
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
