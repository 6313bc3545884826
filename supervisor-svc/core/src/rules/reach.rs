//! Contents that belong to a subtree in its current state. The log identifies contents that belonged to it earlier.

use crate::{
    content::ContentRef,
    ids::{Digest, Sequence, ThreadId},
    state::{mailbox::Body, session::Session, thread::Thread},
    status::{Settled, Status},
};

/// Whether a thread or one below it has that content: as its last message, its result, its first input, input that waits or that its
/// turn was given, or mail. Costs as much as the subtree has threads, inputs and letters.
#[must_use]
pub fn has_content(session: &Session, top: ThreadId, digest: Digest) -> bool {
    session
        .subtree(top)
        .into_iter()
        .any(|thread| thread_has(thread, digest))
}

/// The event that named that content as the last message of a thread, which is settled by it still.
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

/// The whole last message, where it is longer than a status.
fn last_message(status: &Status) -> Option<&ContentRef> {
    match status.settled()? {
        Settled::Completed { content, .. } | Settled::Errored { content, .. } => content.as_ref(),
        Settled::Interrupted { .. } => None,
    }
}
