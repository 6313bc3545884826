//! Bringing a session back: take it over, fold its log, recall its requests.

use super::{failure::Failure, remembered::Requests};
use crate::{
    domain::{
        evolve,
        ids::{Epoch, Sequence, SessionId},
        session::Session,
    },
    store::{EventStore, WriteError, limits::MAX_PAGE},
    wire::record,
};

/// A session as its log made it.
pub(super) struct Loaded {
    pub session: Session,
    pub epoch: Epoch,
    pub requests: Requests,
}

/// Takes the session over, so that an earlier owner is fenced off, and replays it.
pub(super) async fn load(store: &dyn EventStore, id: SessionId) -> Result<Loaded, Failure> {
    let epoch = store.claim(id).await.map_err(|error| match error {
        WriteError::NotFound { session } => Failure::SessionNotFound(session),
        other => crate::store::AppendError::from(other).into(),
    })?;
    let session = replay(store, id).await?;
    let mut requests = Requests::default();
    let mut after = None;
    loop {
        let page = store.requests(id, after, MAX_PAGE).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.key());
        page.iter().for_each(|record| requests.restore(record));
    }
    Ok(Loaded {
        session,
        epoch,
        requests,
    })
}

async fn replay(store: &dyn EventStore, id: SessionId) -> Result<Session, Failure> {
    let mut session: Option<Session> = None;
    let mut after = Sequence::ZERO;
    loop {
        let page = store.read(id, after, MAX_PAGE).await?;
        let Some(last) = page.last() else { break };
        after = last.sequence;
        for stored in &page {
            let recorded = record::decode_record(id, &stored.bytes)?;
            match &mut session {
                Some(session) => evolve::evolve(session, &recorded),
                none => *none = evolve::open(id, &recorded),
            }
        }
    }
    session.ok_or(Failure::SessionNotFound(id))
}
