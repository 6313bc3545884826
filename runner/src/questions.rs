//! Questions to the supervisor whether a tool may run, until they are decided. Pure but for the way of the answers
//! back: it says what to send next; what is sent, and when, is the stage's business.

use std::collections::{BTreeMap, VecDeque};

use tokio::sync::oneshot;
use troupe_proto::supervisor::v1::{ToolDecision, ToolRequest};

/// A question and who waits for the answer.
#[derive(Debug)]
pub(crate) struct Question {
    /// Its `request_id` is unique among all questions of the runner.
    pub(crate) request: ToolRequest,
    pub(crate) answer: oneshot::Sender<ToolDecision>,
}

/// The questions that are not decided, in the order in which they came. Each is asked once a stream, and again on the
/// next one: a stream that breaks takes the answers with it.
///
/// It needs no bound of its own: a thread has a bound for its calls, and whoever waits no longer is not asked for.
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

    /// A new stream: everything is asked again.
    pub(crate) fn rewind(&mut self) {
        self.drop_unwanted();
        // The ids begin with the time at which they were made.
        self.unsent = self.open.keys().cloned().collect();
    }

    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// The next question to send, which counts as sent; `None` also where the last ones are not wanted any more.
    pub(crate) fn next_unsent(&mut self) -> Option<ToolRequest> {
        while let Some(id) = self.unsent.pop_front() {
            if let Some(question) = self.open.get(&id).filter(|question| !question.answer.is_closed()) {
                return Some(question.request.clone());
            }
        }
        None
    }

    /// Hands a decision to whoever waits for it; one that nobody waits for is dropped.
    pub(crate) fn decide(&mut self, decision: ToolDecision) {
        if let Some(question) = self.open.remove(&decision.request_id) {
            // Whoever asked may have gone meanwhile.
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
            reason: String::new(),
        }
    }

    #[test]
    fn a_question_is_asked_once_a_stream_until_it_is_decided() {
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
    fn what_nobody_waits_for_is_not_asked() {
        let mut questions = Questions::default();
        drop(ask(&mut questions, "1"));
        assert_eq!(questions.next_unsent(), None);
        drop(ask(&mut questions, "2"));
        questions.rewind();
        assert!(!questions.has_unsent());
    }
}
