//! Cache of ResolveSpawn responses: equal requests to the same templates have equal responses.

use std::{
    ptr,
    sync::{Arc, Weak},
};

use prost::{Message as _, bytes::Bytes};
use svc_kit::memo::{Memo, MemoLimits};
use troupe_proto::{
    common::v1::ResolvedSpawn,
    registry::v1::{ResolveSpawnRequest, ResolveSpawnResponse},
};

use crate::{
    domain::{catalog::Catalog, digest::Digest},
    source::View,
};

/// The sizes include request, response and footer. A request that alone exceeds `entry_bytes` is not looked up.
const LIMITS: MemoLimits = MemoLimits {
    entries: 1_024,
    bytes: 32 * 1024 * 1024,
    entry_bytes: 256 * 1024,
};

/// The cached responses.
#[derive(Debug)]
pub(crate) struct ResponseCache(Memo<ResolveSpawnRequest, CachedResponse>);

impl Default for ResponseCache {
    fn default() -> Self {
        Self(Memo::new(LIMITS))
    }
}

/// A response, and the catalogue and footer that it was computed from. They are compared by address. A reference to
/// each is kept so that its address cannot be reused. The reference to the catalogue is weak, so a cached response does
/// not keep a large catalogue in memory.
#[derive(Debug)]
struct CachedResponse {
    catalog: Weak<Catalog>,
    footer: Arc<str>,
    response: EncodedResponse,
}

/// An encoded response in two forms: in full, and for a client that already has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EncodedResponse {
    etag: String,
    whole: Bytes,
    unchanged: Bytes,
}

impl EncodedResponse {
    /// Encodes a resolution.
    #[must_use]
    pub(super) fn new(resolved: ResolvedSpawn) -> Self {
        let etag = Digest::of(&resolved.encode_to_vec()).to_string();
        let encoded = |resolved| {
            let etag = etag.clone();
            Bytes::from(ResolveSpawnResponse { resolved, etag }.encode_to_vec())
        };
        Self {
            whole: encoded(Some(resolved)),
            unchanged: encoded(None),
            etag,
        }
    }

    /// Returns the response for a caller that sent this etag.
    #[must_use]
    pub(super) fn to(self, known_etag: &str) -> Bytes {
        if known_etag == self.etag {
            self.unchanged
        } else {
            self.whole
        }
    }

    fn bytes(&self) -> usize {
        self.etag.len() + self.whole.len() + self.unchanged.len()
    }
}

impl ResponseCache {
    /// Returns the cached response to an equal request to the same view.
    #[must_use]
    pub(super) fn get(&self, request: &ResolveSpawnRequest, view: &View) -> Option<EncodedResponse> {
        if request.encoded_len() > LIMITS.entry_bytes {
            return None;
        }
        self.0
            .get(request, |cached| cached.is_from(view).then(|| cached.response.clone()))
    }

    /// Caches a response and replaces the previous one.
    pub(super) fn insert(&self, request: ResolveSpawnRequest, view: &View, response: EncodedResponse) {
        let bytes = request.encoded_len() + response.bytes() + view.footer.len();
        let cached = CachedResponse {
            catalog: Arc::downgrade(&view.catalog),
            footer: Arc::clone(&view.footer),
            response,
        };
        self.0.keep(request, cached, bytes);
    }
}

impl CachedResponse {
    fn is_from(&self, view: &View) -> bool {
        ptr::eq(self.catalog.as_ptr(), Arc::as_ptr(&view.catalog)) && Arc::ptr_eq(&self.footer, &view.footer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::catalog::tests::catalog;

    fn view() -> View {
        View {
            catalog: Arc::new(catalog(&[("a", "x")])),
            footer: "footer".into(),
        }
    }

    fn request(agent_name: &str) -> ResolveSpawnRequest {
        ResolveSpawnRequest {
            agent_name: agent_name.to_owned(),
            ..ResolveSpawnRequest::default()
        }
    }

    fn response(text: &str) -> EncodedResponse {
        EncodedResponse::new(ResolvedSpawn {
            instructions: text.to_owned(),
            ..ResolvedSpawn::default()
        })
    }

    #[test]
    fn known_etag_gets_response_without_body() {
        let decoded = |bytes: Bytes| ResolveSpawnResponse::decode(bytes).unwrap();
        let whole = decoded(response("one").to(""));
        assert_eq!(whole.resolved.unwrap().instructions, "one");
        let unchanged = decoded(response("one").to(&whole.etag));
        assert_eq!((unchanged.resolved, &unchanged.etag), (None, &whole.etag));
        assert!(decoded(response("two").to(&whole.etag)).resolved.is_some());
    }

    #[test]
    fn cached_response_requires_equal_request_and_same_view() {
        let (cache, first) = (ResponseCache::default(), view());
        cache.insert(request("a"), &first, response("one"));
        assert_eq!(cache.get(&request("a"), &first), Some(response("one")));
        assert_eq!(cache.get(&request("b"), &first), None);
        let (catalog, footer) = (Arc::clone(&first.catalog), "footer".into());
        let other_footer = View { catalog, footer };
        // The views are equal but not identical, so the cached response does not apply.
        for other in [view(), other_footer] {
            assert_eq!(cache.get(&request("a"), &other), None);
        }
        let second = view();
        cache.insert(request("a"), &second, response("two"));
        assert_eq!(cache.get(&request("a"), &second), Some(response("two")));
        assert_eq!(cache.get(&request("a"), &first), None);
    }

    #[test]
    fn oversized_responses_are_not_cached() {
        let (cache, view) = (ResponseCache::default(), view());
        let longest = "x".repeat(LIMITS.entry_bytes);
        for (question, answer) in [("a", longest.as_str()), (longest.as_str(), "")] {
            cache.insert(request(question), &view, response(answer));
            assert_eq!(cache.get(&request(question), &view), None);
        }
    }
}
