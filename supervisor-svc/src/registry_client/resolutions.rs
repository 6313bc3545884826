//! Resolutions from the registry, by etag. Every spawn still sends a request. While the result is unchanged, the
//! registry sends only its etag, and all threads of the role share one resolution.

use std::sync::Arc;

use prost::Message as _;
use svc_kit::memo::{Memo, MemoLimits};
use troupe_proto::registry::v1::ResolveSpawnRequest;

use super::resolution::Resolution;

const LIMITS: MemoLimits = MemoLimits {
    entries: 1_024,
    bytes: 32 * 1024 * 1024,
    entry_bytes: 256 * 1024,
};

/// A resolution with its etag.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub etag: String,
    pub resolution: Arc<Resolution>,
}

/// Cache of resolutions.
#[derive(Debug)]
pub(super) struct Resolutions(Memo<ResolveSpawnRequest, Known>);

impl Default for Resolutions {
    fn default() -> Self {
        Self(Memo::new(LIMITS))
    }
}

impl Resolutions {
    /// Returns the last response to a request. The request must have no etag, here and in [`Self::keep`].
    pub fn get(&self, question: &ResolveSpawnRequest) -> Option<Known> {
        self.0.get(question, |known| Some(known.clone()))
    }

    /// Stores a response. Ignores a response without an etag.
    pub fn keep(&self, question: ResolveSpawnRequest, known: Known) {
        if !known.etag.is_empty() {
            let content = known.resolution.content.as_ref();
            // The data extracted from the content is about as large as the content.
            let bytes = question.encoded_len() + 2 * content.map_or(0, |content| content.bytes.len());
            self.0.keep(question, known, bytes);
        }
    }
}
