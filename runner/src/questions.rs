//! Permission requests to the supervisor about tools, until they are decided. Pure except for the reply channels:
//! determines the next request to send, and the runner state sends it.

use std::collections::{BTreeMap, VecDeque};

use tokio::sync::oneshot;
use troupe_proto::supervisor::v1::{ToolDecision, ToolRequest};

/// A permission request and the channel for its answer.
#[derive(Debug)]
pub(crate) struct Question {
    /// The request. Its `request_id` is unique among all requests of the runner.
    pub(crate) request: ToolRequest,
    pub(crate) answer: oneshot::Sender<ToolDecision>,
}

/// The undecided requests, in order of arrival. Each request is sent once per stream, and sent again on the next
/// stream, because answers are lost with a broken stream.
///
/// The number of requests needs no limit: each thread limits its calls, and requests without a waiting caller are
/// dropped.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    open: BTreeMap<String, Question>,
    unsent: VecDeque<String>,
}

impl Questions {
    pub(crate) fn ask(&mut self, question: Question) {
        self.drop_unwanted();
        let id = question.request.request_id.clone();
        self.unsent.push_back(id.clone());
        self.open.insert(id, question);
    }

    /// Begins a new stream: every request is sent again.
    pub(crate) fn rewind(&mut self) {
        self.drop_unwanted();
        // The ids begin with their creation time, so this keeps the order of arrival.
        self.unsent = self.open.keys().cloned().collect();
    }

    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Returns the next request to send, and marks it as sent. `None`: every request was sent, or has no waiting
    /// caller.
    pub(crate) fn next_unsent(&mut self) -> Option<ToolRequest> {
        while let Some(id) = self.unsent.pop_front() {
            if let Some(question) = self.open.get(&id).filter(|question| !question.answer.is_closed()) {
                return Some(question.request.clone());
            }
        }
        None
    }

    /// Sends a decision to the waiting caller. Drops a decision without a caller.
    pub(crate) fn decide(&mut self, decision: ToolDecision) {
        if let Some(question) = self.open.remove(&decision.request_id) {
            // The caller may have stopped waiting.
            let _ = question.answer.send(decision);
        }
    }

    fn drop_unwanted(&mut self) {
        self.open.retain(|_, question| !question.answer.is_closed());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn ask(questions: &mut Questions, id: &str) -> oneshot::Receiver<ToolDecision> {
        let (answer, decision) = oneshot::channel();
        questions.ask(Question {
            request: ToolRequest {
                request_id: id.to_owned(),
                ..Default::default()
            },
            answer,
        });
        decision
    }

    fn unsent(questions: &mut Questions) -> Vec<String> {
        std::iter::from_fn(|| questions.next_unsent())
            .map(|request| request.request_id)
            .collect()
    }

    fn decision(id: &str) -> ToolDecision {
        ToolDecision {
            request_id: id.to_owned(),
            allowed: true,
            ..ToolDecision::default()
        }
    }

    #[test]
    fn question_is_sent_once_per_stream_until_decided() {
        let mut questions = Questions::default();
        let mut first = ask(&mut questions, "1");
        let _second = ask(&mut questions, "2");
        assert!(questions.has_unsent());
        assert_eq!(unsent(&mut questions), ["1", "2"]);
        assert!(!questions.has_unsent());

        questions.decide(decision("1"));
        questions.decide(decision("unknown"));
        assert!(first.try_recv().unwrap().allowed);
        questions.rewind();
        assert_eq!(unsent(&mut questions), ["2"]);
    }

    #[test]
    fn abandoned_question_is_not_sent() {
        let mut questions = Questions::default();
        drop(ask(&mut questions, "1"));
        assert_eq!(questions.next_unsent(), None);
        drop(ask(&mut questions, "2"));
        questions.rewind();
        assert!(!questions.has_unsent());
    }
}
