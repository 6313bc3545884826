//! Circuit breaker for the registry. After several consecutive unanswered requests, further requests fail at once for
//! a while instead of waiting for their timeouts. After that, one request may try again.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use svc_kit::lock::lock;
use tokio::time::Instant;

/// Number of consecutive unanswered requests that opens the circuit.
const FAILURES: u32 = 8;
/// How long the circuit stays open. A rejected caller should not retry earlier.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// The state of the circuit. All clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Circuit(Arc<Mutex<State>>);

#[derive(Debug)]
enum State {
    /// `failures` counts consecutive unanswered requests.
    Closed { failures: u32 },
    /// Open: the registry does not respond. No request is sent before `until`.
    Open { until: Instant },
    /// Open, and one trial request is in flight.
    Trial,
}

impl Default for State {
    fn default() -> Self {
        Self::Closed { failures: 0 }
    }
}

impl Circuit {
    /// Returns a permission for one request; `None` if no request may be sent now.
    pub(super) fn enter(&self) -> Option<Permission> {
        let is_trial = self.with(|state| match *state {
            State::Closed { .. } => Some(false),
            State::Open { until } if until <= Instant::now() => {
                *state = State::Trial;
                Some(true)
            }
            State::Open { .. } | State::Trial => None,
        })?;
        Some(Permission {
            circuit: self.clone(),
            is_trial,
            is_over: false,
        })
    }

    fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        act(&mut lock(&self.0))
    }
}

/// Permission for one request. If it is dropped without a result, for example because the caller disconnects, the state
/// of the registry stays unknown.
#[derive(Debug)]
pub(super) struct Permission {
    circuit: Circuit,
    is_trial: bool,
    is_over: bool,
}

impl Permission {
    /// Records a response from the registry, including an error response.
    pub(super) fn answered(mut self) {
        self.is_over = true;
        self.circuit.with(|state| *state = State::default());
    }

    /// Records that the registry did not respond.
    pub(super) fn unanswered(mut self) {
        self.is_over = true;
        let open = State::Open {
            until: Instant::now() + PAUSE,
        };
        self.circuit.with(|state| match state {
            State::Closed { failures } if *failures + 1 < FAILURES => *failures += 1,
            State::Closed { .. } => *state = open,
            State::Trial if self.is_trial => *state = open,
            // The request was sent before the circuit opened.
            State::Open { .. } | State::Trial => {}
        });
    }
}

impl Drop for Permission {
    fn drop(&mut self) {
        if self.is_trial && !self.is_over {
            self.circuit
                .with(|state| *state = State::Open { until: Instant::now() });
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
    async fn open_circuit_admits_one_trial_after_pause() {
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
    async fn late_failure_does_not_extend_open_circuit() {
        let circuit = Circuit::default();
        let late = circuit.enter().unwrap();
        fail(&circuit, FAILURES);
        advance(PAUSE).await;
        late.unanswered();
        assert!(circuit.enter().is_some());
    }
}
