//! Every status with every step, compared with the table of STATE.md §2.

use supervisor_core::status::{
    StatusKind::{self, AwaitingApproval, Completed, Errored, Interrupted, PendingInit, Queued, Running, Shutdown},
    Step,
};

/// Every legal step, row by row as in STATE.md §2. All other steps are illegal.
const LEGAL: &[(StatusKind, Step, StatusKind)] = &[
    // A spawn is approved. If a slot is free, the thread is admitted in the same append.
    (AwaitingApproval, Step::Granted, Queued),
    // A thread takes a slot: from the queue, or as a settled thread whose input arrived during its turn.
    (Queued, Step::Admitted, PendingInit),
    (Completed, Step::Admitted, PendingInit),
    (Errored, Step::Admitted, PendingInit),
    (Interrupted, Step::Admitted, PendingInit),
    // A turn is placed, dispatched and started. A running turn restarts elsewhere.
    (PendingInit, Step::Placed, PendingInit),
    (PendingInit, Step::Dispatched, PendingInit),
    (PendingInit, Step::Started, Running),
    (Running, Step::Placed, PendingInit),
    // A turn ends, whether or not it began.
    (Queued, Step::Ended(Completed), Completed),
    (Queued, Step::Ended(Errored), Errored),
    (Queued, Step::Ended(Interrupted), Interrupted),
    (PendingInit, Step::Ended(Completed), Completed),
    (PendingInit, Step::Ended(Errored), Errored),
    (PendingInit, Step::Ended(Interrupted), Interrupted),
    (Running, Step::Ended(Completed), Completed),
    (Running, Step::Ended(Errored), Errored),
    (Running, Step::Ended(Interrupted), Interrupted),
    // Input wakes a settled thread. In all other states the input waits.
    (Completed, Step::InputQueued, Queued),
    (Errored, Step::InputQueued, Queued),
    (Interrupted, Step::InputQueued, Queued),
    (Queued, Step::InputQueued, Queued),
    (AwaitingApproval, Step::InputQueued, AwaitingApproval),
    (PendingInit, Step::InputQueued, PendingInit),
    (Running, Step::InputQueued, Running),
    // Every open thread can be closed.
    (Queued, Step::Closed, Shutdown),
    (AwaitingApproval, Step::Closed, Shutdown),
    (PendingInit, Step::Closed, Shutdown),
    (Running, Step::Closed, Shutdown),
    (Completed, Step::Closed, Shutdown),
    (Errored, Step::Closed, Shutdown),
    (Interrupted, Step::Closed, Shutdown),
    // A resumed thread is settled.
    (Shutdown, Step::Resumed(Completed), Completed),
    (Shutdown, Step::Resumed(Errored), Errored),
    (Shutdown, Step::Resumed(Interrupted), Interrupted),
];

fn every_step() -> Vec<Step> {
    let mut steps = vec![
        Step::Granted,
        Step::Admitted,
        Step::Placed,
        Step::Dispatched,
        Step::Started,
        Step::InputQueued,
        Step::Closed,
    ];
    steps.extend(StatusKind::ALL.map(Step::Ended));
    steps.extend(StatusKind::ALL.map(Step::Resumed));
    steps
}

#[test]
fn transitions_equal_the_table_of_the_contract() {
    let mut legal = 0;
    for from in StatusKind::ALL {
        for step in every_step() {
            let row = LEGAL.iter().find(|row| (row.0, row.1) == (from, step));
            assert_eq!(from.after(step), row.map(|row| row.2), "{from} {step:?}");
            legal += usize::from(row.is_some());
        }
    }
    assert_eq!(legal, LEGAL.len(), "the table contains a row twice");
}

#[test]
fn predicates_of_each_status() {
    for (kind, active, settled, open, text) in [
        (Queued, false, false, true, "QUEUED"),
        (AwaitingApproval, false, false, true, "AWAITING_APPROVAL"),
        (PendingInit, true, false, true, "PENDING_INIT"),
        (Running, true, false, true, "RUNNING"),
        (Completed, false, true, true, "COMPLETED"),
        (Errored, false, true, true, "ERRORED"),
        (Interrupted, false, true, true, "INTERRUPTED"),
        (Shutdown, false, true, false, "SHUTDOWN"),
    ] {
        assert_eq!(
            (
                kind.is_active(),
                kind.is_settled(),
                kind.is_open(),
                kind.to_string().as_str()
            ),
            (active, settled, open, text)
        );
    }
}
