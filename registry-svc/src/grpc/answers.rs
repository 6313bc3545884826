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

/// The sizes include request, response and footer. A larger request is not looked up.
const LIMITS: MemoLimits = MemoLimits {
    entries: 1_024,
    bytes: 32 * 1024 * 1024,
    entry_bytes: 256 * 1024,
};

/// The cached responses.
#[derive(Debug)]
pub(crate) struct Answers(Memo<ResolveSpawnRequest, Answer>);

impl Default for Answers {
    fn default() -> Self {
        Self(Memo::new(LIMITS))
    }
}

/// A response and the catalogue and footer that it was computed from, which are compared by address. A reference to
/// each is kept so that the address cannot be reused. The reference to the catalogue is weak, so a cached response does
/// not keep a large catalogue in memory.
#[derive(Debug)]
struct Answer {
    catalog: Weak<Catalog>,
    footer: Arc<str>,
    response: Encoded,
}

/// An encoded response in two forms: in full, and for a client that already has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Encoded {
    etag: String,
    whole: Bytes,
    unchanged: Bytes,
}

impl Encoded {
    /// What a spawn gets.
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

impl Answers {
    /// Returns the cached response to an equal request to the same view.
    #[must_use]
    pub(super) fn get(&self, request: &ResolveSpawnRequest, view: &View) -> Option<Encoded> {
        if request.encoded_len() > LIMITS.entry_bytes {
            return None;
        }
        self.0
            .get(request, |answer| answer.is_from(view).then(|| answer.response.clone()))
    }

    /// Caches a response and replaces the previous one.
    pub(super) fn keep(&self, request: ResolveSpawnRequest, view: &View, response: Encoded) {
        let bytes = request.encoded_len() + response.bytes() + view.footer.len();
        let answer = Answer {
            catalog: Arc::downgrade(&view.catalog),
            footer: Arc::clone(&view.footer),
            response,
        };
        self.0.keep(request, answer, bytes);
    }
}

impl Answer {
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

    fn response(text: &str) -> Encoded {
        Encoded::new(ResolvedSpawn {
            instructions: text.to_owned(),
            ..ResolvedSpawn::default()
        })
    }

    #[test]
    fn who_has_the_answer_is_sent_its_name_only() {
        let decoded = |bytes: Bytes| ResolveSpawnResponse::decode(bytes).unwrap();
        let whole = decoded(response("one").to(""));
        assert_eq!(whole.resolved.unwrap().instructions, "one");
        let unchanged = decoded(response("one").to(&whole.etag));
        assert_eq!((unchanged.resolved, &unchanged.etag), (None, &whole.etag));
        assert!(decoded(response("two").to(&whole.etag)).resolved.is_some());
    }

    #[test]
    fn only_the_same_question_to_the_same_view_has_the_same_answer() {
        let (answers, first) = (Answers::default(), view());
        answers.keep(request("a"), &first, response("one"));
        assert_eq!(answers.get(&request("a"), &first), Some(response("one")));
        assert_eq!(answers.get(&request("b"), &first), None);
        let (catalog, footer) = (Arc::clone(&first.catalog), "footer".into());
        let other_footer = View { catalog, footer };
        // The views are equal but not identical, so the cached response does not apply.
        for other in [view(), other_footer] {
            assert_eq!(answers.get(&request("a"), &other), None);
        }
        let second = view();
        answers.keep(request("a"), &second, response("two"));
        assert_eq!(answers.get(&request("a"), &second), Some(response("two")));
        assert_eq!(answers.get(&request("a"), &first), None);
    }

    #[test]
    fn what_is_too_large_is_not_kept() {
        let (answers, view) = (Answers::default(), view());
        let longest = "x".repeat(LIMITS.entry_bytes);
        for (question, answer) in [("a", longest.as_str()), (longest.as_str(), "")] {
            answers.keep(request(question), &view, response(answer));
            assert_eq!(answers.get(&request(question), &view), None);
        }
    }
}
