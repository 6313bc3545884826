//! Instructions that a child inherits from its parent. They apply if the child's role has no instructions, or if its
//! instructions follow the parent's.

use std::sync::Arc;

use supervisor_log::store::EventStore;
use svc_kit::memo::{Memo, MemoLimits};
use troupe_proto::common::v1::{BlockKind, ResolvedSpawn};

use crate::{
    domain::{
        event::Role,
        ids::{Digest, SessionId},
    },
    engine::{Failure, read_message},
};

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

impl Instructions {
    /// Returns the role block that a thread's spawn recorded. Empty if there is no role block.
    pub async fn of(&self, store: &dyn EventStore, session: SessionId, role: &Role) -> Result<Arc<str>, Failure> {
        let Some(content) = &role.resolved else {
            return Ok(Arc::default());
        };
        if let Some(text) = self.0.get(&content.digest, |text| Some(Arc::clone(text))) {
            return Ok(text);
        }
        let resolved: ResolvedSpawn = read_message(store, session, content).await?;
        let block = resolved.blocks.iter().find(|block| block.kind() == BlockKind::Role);
        let text: Arc<str> = block.map(|block| block.text.as_str()).unwrap_or_default().into();
        self.0.keep(content.digest, Arc::clone(&text), text.len());
        Ok(text)
    }
}
