//! Whether it makes sense to ask the registry at all. After some questions in a row without an answer, the next ones are
//! told so at once for a while, instead of each waiting for its own time to pass; then one may try.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// After so many questions in a row without an answer nobody asks for a while.
const FAILURES: u32 = 8;
/// How long that is. Callers are told to wait at least so long before they try again.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// Whether the registry answers. Every clone is the same circuit.
#[derive(Clone, Debug, Default)]
pub(super) struct Circuit(Arc<Mutex<State>>);

#[derive(Debug)]
enum State {
    /// As far as is known; so many questions in a row were not answered.
    Answers { failures: u32 },
    /// It does not, and nobody asks before this.
    Away { until: Instant },
    /// One is trying.
    Tried,
}

impl Default for State {
    fn default() -> Self {
        Self::Answers { failures: 0 }
    }
}

impl Circuit {
    /// The leave to ask; `None`: not now.
    pub(super) fn enter(&self) -> Option<Passage> {
        let is_trial = self.with(|state| match *state {
            State::Answers { .. } => Some(false),
            State::Away { until } if until <= Instant::now() => {
                *state = State::Tried;
                Some(true)
            }
            State::Away { .. } | State::Tried => None,
        })?;
        Some(Passage {
            circuit: self.clone(),
            is_trial,
            is_over: false,
        })
    }

    fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The leave to ask once. Dropped without a word, as when its caller has left, it says nothing about the registry.
#[derive(Debug)]
pub(super) struct Passage {
    circuit: Circuit,
    is_trial: bool,
    is_over: bool,
}

impl Passage {
    /// The registry answered, whatever it said.
    pub(super) fn answered(mut self) {
        self.is_over = true;
        self.circuit.with(|state| *state = State::default());
    }

    /// It did not.
    pub(super) fn unanswered(mut self) {
        self.is_over = true;
        let away = State::Away {
            until: Instant::now() + PAUSE,
        };
        self.circuit.with(|state| match state {
            State::Answers { failures } if *failures + 1 < FAILURES => *failures += 1,
            State::Answers { .. } => *state = away,
            State::Tried if self.is_trial => *state = away,
            // Asked before the others gave up.
            State::Away { .. } | State::Tried => {}
        });
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        if self.is_trial && !self.is_over {
            self.circuit
                .with(|state| *state = State::Away { until: Instant::now() });
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn fail(circuit: &Circuit, times: u32) {
        for _ in 0..times {
            circuit.enter().unwrap().unanswered();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_answer_is_left_alone_for_a_while_and_then_tried_by_one() {
        let circuit = Circuit::default();
        fail(&circuit, FAILURES - 1);
        circuit.enter().unwrap().answered();
        fail(&circuit, FAILURES);
        assert!(circuit.enter().is_none());

        advance(PAUSE).await;
        let trial = circuit.enter().unwrap();
        assert!(circuit.enter().is_none(), "one is enough");
        trial.unanswered();
        assert!(circuit.enter().is_none());

        advance(PAUSE).await;
        drop(circuit.enter().unwrap());
        circuit.enter().unwrap().answered();
        fail(&circuit, 1);
        assert!(circuit.enter().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_asked_before_does_not_prolong_it() {
        let circuit = Circuit::default();
        let late = circuit.enter().unwrap();
        fail(&circuit, FAILURES);
        advance(PAUSE).await;
        late.unanswered();
        assert!(circuit.enter().is_some());
    }
}
