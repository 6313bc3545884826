//! Contents that belong to a subtree in its current state. The log identifies contents that belonged to the subtree
//! earlier.

use crate::{
    content::ContentRef,
    ids::{Digest, Sequence, ThreadId},
    state::{mailbox::Body, session::Session, thread::Thread},
    status::{Settled, Status},
};

/// Returns whether a thread of the subtree has a content: as its last message, its result, its first input, queued
/// input, input of its current turn, or mail. The cost is proportional to the number of threads, inputs and letters in
/// the subtree.
#[must_use]
pub fn has_content(session: &Session, top: ThreadId, digest: Digest) -> bool {
    session
        .subtree(top)
        .into_iter()
        .any(|thread| thread_has(thread, digest))
}

/// Returns the event that settled a thread with this content as its last message. `None` if no thread is settled with
/// this content now.
#[must_use]
pub fn named_as_last_message(session: &Session, digest: Digest) -> Option<Sequence> {
    let named = session.subtree(session.root_id()?).into_iter().find(|thread| {
        let is_settled = matches!(thread.status, Status::Settled(_));
        is_settled && last_message(&thread.status).is_some_and(|content| content.digest == digest)
    })?;
    Some(named.status_sequence)
}

fn thread_has(thread: &Thread, digest: Digest) -> bool {
    let is_it = |content: &ContentRef| content.digest == digest;
    last_message(&thread.status).is_some_and(is_it)
        || thread.result.as_ref().is_some_and(|result| is_it(&result.content))
        || thread.spawned.input.as_ref().is_some_and(is_it)
        || thread.pending_inputs.iter().any(|input| is_it(&input.content))
        || thread.turn.inputs().iter().any(|input| is_it(&input.content))
        || thread.mail.letters().any(|letter| match &letter.body {
            Body::Handoff(handoff) => is_it(&handoff.message) || handoff.structured.as_ref().is_some_and(is_it),
            Body::Settled { status, .. } => last_message(status).is_some_and(is_it),
            Body::GroupEnded { .. } => false,
        })
}

/// Returns the complete last message if it exceeds the size limit of a status.
fn last_message(status: &Status) -> Option<&ContentRef> {
    match status.settled()? {
        Settled::Completed { content, .. } | Settled::Errored { content, .. } => content.as_ref(),
        Settled::Interrupted { .. } => None,
    }
}
