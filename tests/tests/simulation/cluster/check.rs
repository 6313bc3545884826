//! Checks of the log of several supervisors, in addition to the checks with one supervisor.

use std::collections::BTreeMap;

use super::reader::Read;
use crate::{
    log::Log,
    shared::{Acknowledged, Promise, SharedState},
};

/// The reasons in the log for the loss of a program.
const LOSSES: [&str; 2] = ["came back without the agent", "was lost: its lease ran out"];

/// Checks the order of epochs, writes and reads, and the fate of all programs.
pub fn check(log: &Log, shared: &SharedState, reads: &[Read]) {
    epochs_do_not_interleave(log, shared);
    let sequences = sequences(log);
    let promises = shared.promises.borrow();
    let writes = promises.iter().filter_map(|write| Write::of(write, &sequences));
    let writes: Vec<Write<'_>> = writes.collect();
    writes_keep_their_order(&writes);
    reads_are_not_stale(&writes, reads);
    programs_are_not_lost(log, shared);
}

/// Checks that an owner appends nothing after the beginning of the next epoch.
fn epochs_do_not_interleave(log: &Log, shared: &SharedState) {
    let epochs = shared.store.epochs(log.session);
    assert_eq!(epochs.len(), log.records.len(), "the log has a gap");
    let beginnings = shared.store.beginnings(log.session);
    for (sequence, epoch) in epochs {
        let next = beginnings.iter().find(|(beginning, _)| *beginning > epoch);
        if let Some((next, head)) = next {
            assert!(
                sequence <= *head,
                "record {sequence} of epoch {epoch} was appended after the beginning of epoch {next} at {head}"
            );
        }
    }
}

/// Returns the sequence of the first event of each request.
fn sequences(log: &Log) -> BTreeMap<&str, u64> {
    let mut sequences = BTreeMap::new();
    for recorded in &log.records {
        if let Some(request_id) = recorded.metadata.request_id.as_deref() {
            sequences.entry(request_id).or_insert(recorded.sequence.get());
        }
    }
    sequences
}

/// An acknowledged write.
struct Write<'s> {
    request_id: &'s str,
    sequence: u64,
    began: u64,
    answered: u64,
}

impl<'s> Write<'s> {
    /// Returns `None` if the log has no event of the write, because it changed nothing.
    fn of(write: &'s Acknowledged, sequences: &BTreeMap<&str, u64>) -> Option<Self> {
        let request_id = match &write.promise {
            Promise::Spawned { request_id, .. }
            | Promise::InputQueued { request_id, .. }
            | Promise::Noted { request_id, .. }
            | Promise::Closing { request_id, .. } => request_id,
        };
        Some(Self {
            request_id,
            sequence: *sequences.get(request_id.as_str())?,
            began: write.began,
            answered: write.answered,
        })
    }
}

/// Checks that a write that began after the acknowledgement of another write comes after it in the log.
fn writes_keep_their_order(writes: &[Write<'_>]) {
    for earlier in writes {
        for later in writes.iter().filter(|later| later.began > earlier.answered) {
            assert!(
                later.sequence > earlier.sequence,
                "\"{}\" at {} is before \"{}\" at {}",
                later.request_id,
                later.sequence,
                earlier.request_id,
                earlier.sequence
            );
        }
    }
}

/// Checks that each read includes every write that was acknowledged before the read began.
fn reads_are_not_stale(writes: &[Write<'_>], reads: &[Read]) {
    for read in reads {
        let before = writes.iter().filter(|write| write.answered < read.began);
        if let Some(last) = before.max_by_key(|write| write.sequence) {
            assert!(
                read.sequence >= last.sequence,
                "a read includes {}, not \"{}\" at {}",
                read.sequence,
                last.request_id,
                last.sequence
            );
        }
    }
}

/// Checks that the log reports no program as lost while its runner still has it.
fn programs_are_not_lost(log: &Log, shared: &SharedState) {
    let programs = shared.programs.borrow();
    let states = log.states();
    // The state before the event contains the attempt that the event ends.
    for (before, recorded) in states.zip(log.records.iter().skip(1)) {
        let shown = format!("{:?}", recorded.event);
        let (Some(thread), true) = (recorded.event.thread(), LOSSES.iter().any(|loss| shown.contains(loss))) else {
            continue;
        };
        let Some(attempt) = before.thread(thread) else { continue };
        let program = programs.get(&(thread.to_string(), attempt.generation.get()));
        let is_gone = program.is_none_or(|program| {
            let had_ended = program.ended.is_some_and(|head| head < recorded.sequence.get());
            // A turn that was sent and has not arrived at the runner may be lost.
            let known = program.turns.iter().rfind(|(head, _)| *head < recorded.sequence.get());
            had_ended || known.map_or(0, |(_, turn)| *turn) < attempt.turn.number().get()
        });
        assert!(
            is_gone,
            "{program:?} of {thread} runs, and record {} says: {shown}",
            recorded.sequence
        );
    }
}
