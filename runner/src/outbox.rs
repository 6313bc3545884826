//! Reports to the supervisor. Pure: stores recorded reports until they are durable, and determines the next report to
//! send. The runner state sends them.

use std::collections::{BTreeMap, VecDeque};

/// One attempt to execute a thread. Commands and reports of another attempt are ignored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(test, derive(Default))]
pub(crate) struct Attempt {
    pub(crate) thread_id: String,
    pub(crate) generation: u32,
}

impl Attempt {
    pub(crate) fn new(thread_id: impl Into<String>, generation: u32) -> Self {
        Self {
            thread_id: thread_id.into(),
            generation,
        }
    }
}

/// A report with its number in its attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbered<R> {
    pub(crate) attempt: Attempt,
    pub(crate) sequence: u64,
    pub(crate) report: R,
}

/// The reports of all attempts. The reports of an attempt are numbered from 1, kept until acknowledged, and sent again
/// after a reattach.
///
/// Reports of state changes need no limit: turns start only by command, so an attempt without a connection to the
/// supervisor soon has nothing more to report. The owner of the outbox limits other reports.
#[derive(Debug)]
pub(crate) struct Outbox<R> {
    lanes: BTreeMap<Attempt, Lane<R>>,
}

/// `durable <= sent <= durable + unacknowledged.len()`; `unacknowledged` begins with report `durable + 1`.
#[derive(Debug)]
struct Lane<R> {
    durable: u64,
    sent: u64,
    unacknowledged: VecDeque<R>,
}

impl<R> Default for Lane<R> {
    fn default() -> Self {
        Self {
            durable: 0,
            sent: 0,
            unacknowledged: VecDeque::new(),
        }
    }
}

impl<R> Lane<R> {
    fn last(&self) -> u64 {
        self.durable + self.unacknowledged.len() as u64
    }

    fn acknowledge(&mut self, sequence: u64) {
        while self.durable < sequence && self.unacknowledged.pop_front().is_some() {
            self.durable += 1;
        }
        self.sent = self.sent.max(self.durable);
    }

    fn next_unsent(&self) -> Option<&R> {
        self.unacknowledged.get(usize::try_from(self.sent - self.durable).ok()?)
    }
}

impl<R> Outbox<R> {
    pub(crate) const fn new() -> Self {
        Self { lanes: BTreeMap::new() }
    }

    /// Records a report and returns its number.
    pub(crate) fn record(&mut self, attempt: &Attempt, report: R) -> u64 {
        let lane = self.lanes.entry(attempt.clone()).or_default();
        lane.unacknowledged.push_back(report);
        lane.last()
    }

    /// Marks every report of the attempt up to this number as acknowledged: it is durable, or the supervisor ignored
    /// it.
    pub(crate) fn acknowledge(&mut self, attempt: &Attempt, sequence: u64) {
        if let Some(lane) = self.lanes.get_mut(attempt) {
            lane.acknowledge(sequence);
        }
    }

    /// Begins a new stream: everything that is not durable is sent again.
    pub(crate) fn rewind(&mut self) {
        for lane in self.lanes.values_mut() {
            lane.sent = lane.durable;
        }
    }

    /// Removes an attempt and its reports.
    pub(crate) fn forget(&mut self, attempt: &Attempt) {
        self.lanes.remove(attempt);
    }

    /// Returns the number of the attempt's last report, acknowledged or not. 0: there is no report.
    pub(crate) fn last(&self, attempt: &Attempt) -> u64 {
        self.lanes.get(attempt).map_or(0, Lane::last)
    }

    /// Returns the reports of the attempt that are not durable.
    pub(crate) fn unacknowledged(&self, attempt: &Attempt) -> impl Iterator<Item = &R> {
        self.lanes
            .get(attempt)
            .into_iter()
            .flat_map(|lane| &lane.unacknowledged)
    }

    /// Returns whether every report of the attempt is durable.
    pub(crate) fn is_clear(&self, attempt: &Attempt) -> bool {
        self.unacknowledged(attempt).next().is_none()
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.lanes.values().any(|lane| lane.next_unsent().is_some())
    }
}

impl<R: Clone> Outbox<R> {
    /// Returns the next report to send, and marks it as sent. Reports of one attempt are in order.
    pub(crate) fn next_unsent(&mut self) -> Option<Numbered<R>> {
        self.lanes.iter_mut().find_map(|(attempt, lane)| {
            let report = lane.next_unsent()?.clone();
            lane.sent += 1;
            Some(Numbered {
                attempt: attempt.clone(),
                sequence: lane.sent,
                report,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn attempt() -> Attempt {
        Attempt::new("t", 1)
    }

    fn sent(outbox: &mut Outbox<u64>) -> Vec<u64> {
        std::iter::from_fn(|| outbox.next_unsent())
            .map(|numbered| numbered.sequence)
            .collect()
    }

    #[test]
    fn early_acknowledgement_skips_covered_reports() {
        let mut outbox = Outbox::new();
        for _ in 0..3 {
            outbox.record(&attempt(), 0);
        }
        outbox.acknowledge(&attempt(), 2);
        assert_eq!(sent(&mut outbox), [3]);
        assert!(!outbox.is_clear(&attempt()));
        outbox.acknowledge(&attempt(), 99);
        assert!(outbox.is_clear(&attempt()));
        assert_eq!(outbox.record(&attempt(), 0), 4);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Record,
        /// The next report is sent. It arrives, or is lost with the stream.
        Send {
            arrives: bool,
        },
        Acknowledge,
        Attach,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => Just(Step::Record),
            4 => any::<bool>().prop_map(|arrives| Step::Send { arrives }),
            2 => Just(Step::Acknowledge),
            1 => Just(Step::Attach),
        ]
    }

    proptest! {
        /// Checks that a supervisor that accepts reports in order receives each report exactly once, after any loss of
        /// messages.
        #[test]
        fn reports_arrive_once_and_in_order(steps in prop::collection::vec(step(), 0..200)) {
            let mut outbox = Outbox::new();
            let mut recorded = 0_u64;
            let mut applied: Vec<u64> = Vec::new();
            // After a lost message the stream is broken until the runner attaches again.
            let mut broken = false;
            let arrive = |numbered: Numbered<u64>, applied: &mut Vec<u64>| {
                assert_eq!(numbered.sequence, numbered.report);
                let next = applied.len() as u64 + 1;
                assert!(numbered.sequence <= next, "a gap before {}", numbered.sequence);
                if numbered.sequence == next {
                    applied.push(numbered.report);
                }
            };
            for step in steps {
                match step {
                    Step::Record => {
                        recorded += 1;
                        prop_assert_eq!(outbox.record(&attempt(), recorded), recorded);
                    }
                    Step::Send { arrives } => {
                        if let Some(numbered) = outbox.next_unsent() {
                            broken |= !arrives;
                            if !broken {
                                arrive(numbered, &mut applied);
                            }
                        }
                    }
                    Step::Acknowledge => outbox.acknowledge(&attempt(), applied.len() as u64),
                    Step::Attach => {
                        outbox.acknowledge(&attempt(), applied.len() as u64);
                        outbox.rewind();
                        broken = false;
                    }
                }
                prop_assert_eq!(outbox.last(&attempt()), recorded);
            }
            outbox.acknowledge(&attempt(), applied.len() as u64);
            outbox.rewind();
            while let Some(numbered) = outbox.next_unsent() {
                arrive(numbered, &mut applied);
            }
            prop_assert_eq!(applied, (1..=recorded).collect::<Vec<_>>());
            outbox.acknowledge(&attempt(), recorded);
            prop_assert!(outbox.is_clear(&attempt()));
        }
    }
}
