//! A reader: it repeatedly reads the session from any supervisor.

use std::{cell::RefCell, rc::Rc};

use tokio::time::sleep;
use troupe_proto::supervisor::v1::GetSessionRequest;

use crate::{caller::Caller, shared::SharedState};

/// The host of the reader.
pub const READER: &str = "reader";

/// The result of a read.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// The stamp of the attempt that received the response.
    pub began: u64,
    /// The sequence of the last event that the response includes.
    pub sequence: u64,
}

/// Reads until the session has ended.
pub async fn run(seed: u64, shared: Rc<SharedState>, reads: Rc<RefCell<Vec<Read>>>) -> turmoil::Result {
    let mut reader = Caller::with_session(READER, seed, Rc::clone(&shared)).await;
    let request = GetSessionRequest {
        session_id: reader.session.session_id.clone(),
    };
    while shared.end.get().is_none() {
        let began = RefCell::new(0);
        let answer = reader
            .insist(&request, |mut client, request| {
                *began.borrow_mut() = shared.stamp();
                async move { client.get_session(request).await }
            })
            .await;
        let sequence = answer.unwrap().session.unwrap().sequence;
        reads.borrow_mut().push(Read {
            began: began.into_inner(),
            sequence,
        });
        let pause = reader.rng.millis(10..=300);
        sleep(pause).await;
    }
    Ok(())
}
