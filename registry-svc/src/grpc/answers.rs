//! Keeps answers to ResolveSpawn: the same question to the same templates has the same answer.

use std::{
    collections::HashMap,
    mem, ptr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use prost::{Message as _, bytes::Bytes};
use troupe_proto::registry::v1::ResolveSpawnRequest;

use crate::{domain::catalog::Catalog, source::View};

/// How many answers are kept. With more, or more bytes, they are collected anew.
const MAX_ANSWERS: usize = 1_024;
/// How many bytes they have together: question, answer and footer of each.
const MAX_BYTES: usize = 32 * 1024 * 1024;
/// How many bytes one may have. A longer question is not even looked for.
const MAX_ANSWER_BYTES: usize = 256 * 1024;

/// The answers that were given.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    answers: HashMap<ResolveSpawnRequest, Answer>,
    bytes: usize,
}

/// An answer and what it was made from, which are told apart by their addresses: a reference to each is kept, so that
/// nothing else can come to lie there. That to the catalogue, which may be large, does not keep what is in it.
#[derive(Debug)]
struct Answer {
    catalog: Weak<Catalog>,
    footer: Arc<str>,
    /// Encoded, as it is sent.
    response: Bytes,
    bytes: usize,
}

impl Answers {
    /// The answer that this very question got before, from this very view.
    #[must_use]
    pub(super) fn get(&self, request: &ResolveSpawnRequest, view: &View) -> Option<Bytes> {
        if request.encoded_len() > MAX_ANSWER_BYTES {
            return None;
        }
        let kept = self.lock();
        let answer = kept.answers.get(request)?;
        answer.is_from(view).then(|| answer.response.clone())
    }

    /// Keeps an answer in the place of the one before.
    pub(super) fn keep(&self, request: ResolveSpawnRequest, view: &View, response: Bytes) {
        let bytes = request.encoded_len() + response.len() + view.footer.len();
        if bytes > MAX_ANSWER_BYTES {
            return;
        }
        let answer = Answer {
            catalog: Arc::downgrade(&view.catalog),
            footer: Arc::clone(&view.footer),
            response,
            bytes,
        };
        let mut kept = self.lock();
        let gone = if kept.answers.len() >= MAX_ANSWERS || kept.bytes + bytes > MAX_BYTES {
            mem::take(&mut *kept)
        } else {
            Kept::default()
        };
        kept.bytes += bytes;
        let before = kept.answers.insert(request, answer);
        kept.bytes -= before.as_ref().map_or(0, |before| before.bytes);
        // Other calls do not wait until they are freed.
        drop(kept);
        drop((gone, before));
    }

    /// Nothing that panics is done under the lock.
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn response(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    #[test]
    fn only_the_same_question_to_the_same_view_has_the_same_answer() {
        let (answers, first) = (Answers::default(), view());
        answers.keep(request("a"), &first, response("one"));
        assert_eq!(answers.get(&request("a"), &first), Some(response("one")));
        assert_eq!(answers.get(&request("b"), &first), None);
        let (catalog, footer) = (Arc::clone(&first.catalog), "footer".into());
        let other_footer = View { catalog, footer };
        // Equal, but not the same: the next time it may differ.
        for other in [view(), other_footer] {
            assert_eq!(answers.get(&request("a"), &other), None);
        }
        let second = view();
        answers.keep(request("a"), &second, response("two"));
        assert_eq!(answers.get(&request("a"), &second), Some(response("two")));
        assert_eq!(answers.get(&request("a"), &first), None);
    }

    #[test]
    fn the_bounds_hold() {
        let (answers, view) = (Answers::default(), view());
        let (long, longest) = ("x".repeat(MAX_ANSWER_BYTES / 2), "x".repeat(MAX_ANSWER_BYTES));
        answers.keep(request("a"), &view, response(&longest));
        answers.keep(request(&longest), &view, response(""));
        assert_eq!(answers.lock().answers.len(), 0);
        for number in 0..=MAX_ANSWERS {
            answers.keep(request(&number.to_string()), &view, response(&long));
            let kept = answers.lock();
            assert!(kept.answers.len() <= MAX_ANSWERS && kept.bytes <= MAX_BYTES);
            assert_eq!(
                kept.bytes,
                kept.answers.values().map(|answer| answer.bytes).sum::<usize>()
            );
        }
        for number in 0..=MAX_ANSWERS {
            answers.keep(request(&number.to_string()), &view, response("short"));
        }
        let kept = answers.lock();
        assert!((1..=MAX_ANSWERS).contains(&kept.answers.len()));
        assert_eq!(
            kept.bytes,
            kept.answers.values().map(|answer| answer.bytes).sum::<usize>()
        );
    }
}
