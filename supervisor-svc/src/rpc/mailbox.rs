//! Reading and acknowledging mail.

use std::sync::Arc;

use tonic::{Request, Status};
use troupe_proto::supervisor::v1 as pb;

use super::{SupervisorService, call::Call, page::Page, parse, status::refused};
use crate::{convert::mail::letter_to_pb, domain::{command::Command, ids::Sequence, rejection::{GuardedVerb, Refusal}, rules::{authority, mail::letter_in_log}, state::{mailbox::Letter, session::Session, thread::Thread}}, engine::{Failure, tail::read_log}};

/// Maximum number of log pages that one page of read mail scans. Each has [`MAX_PAGE`](supervisor_log::store::limits::MAX_PAGE)
/// records.
const LOG_PAGES: usize = 8;

impl SupervisorService {
    pub(super) async fn mailbox(
        &self,
        request: Request<pb::ListMailboxRequest>,
    ) -> Result<pb::ListMailboxResponse, Status> {
        let call = Call::of(&request)?;
        let mut request = request.into_inner();
        let page = Page::<Sequence>::of(&mut request, &call.scope)?;
        let named = check::optional_id("thread_id", &request.thread_id)?;
        let handle = self
            .session_for(&call, &request.session_id, named, GuardedVerb::Act)
            .await?;
        let target = Self::thread_or_own(&call, &handle, named)?;
        let state = handle.state();
        let thread = authority::authorize(&state, &call.caller, "ListMailbox", target).map_err(refused)?;
        let after = page.after().copied().unwrap_or_default();
        let (letters, rest) = if request.include_acknowledged {
            let after = after.max(thread.spawn_sequence);
            self.letters_in_log(&state, thread, after, page.size()).await?
        } else {
            let waiting = thread.mail.after(after).map(Arc::clone);
            (waiting.take(page.size() + 1).collect(), None)
        };
        let entries = letters.iter().map(|letter| (letter.sequence, letter));
        let show = |letter: &Arc<Letter>| letter_to_pb(letter, !thread.mail.holds(letter.sequence));
        let (mail, next_page_token) = page.cut(entries, show, rest);
        Ok(pb::ListMailboxResponse { mail, next_page_token })
    }

    /// Returns a thread's letters in the log after a sequence number, and the position where the unread log begins.
    /// Returns more than `wanted` letters, or all letters of the scanned part. Of compacted letters, only those that
    /// still wait are included.
    async fn letters_in_log(
        &self,
        session: &Session,
        receiver: &Thread,
        after: Sequence,
        wanted: usize,
    ) -> Result<(Vec<Arc<Letter>>, Option<Sequence>), Failure> {
        let store = &self.directory.context().store;
        let mut position = after;
        let mut letters = Vec::new();
        for _ in 0..LOG_PAGES {
            let events = match read_log(store.as_ref(), session.id, position, session.sequence).await {
                Err(Failure::Refused(Refusal::HistoryCompacted { oldest, .. })) => {
                    let waiting = receiver.mail.after(position);
                    letters.extend(waiting.take_while(|letter| letter.sequence <= oldest).map(Arc::clone));
                    position = oldest;
                    continue;
                }
                events => events?,
            };
            let Some(last) = events.last() else { break };
            position = last.sequence;
            let found = events
                .iter()
                .filter_map(|recorded| letter_in_log(session, receiver.id, recorded));
            letters.extend(found.map(Arc::new));
            if letters.len() > wanted {
                break;
            }
        }
        Ok((letters, (position < session.sequence).then_some(position)))
    }

    pub(super) async fn acknowledge(
        &self,
        request: Request<pb::AcknowledgeMailboxRequest>,
    ) -> Result<pb::AcknowledgeMailboxResponse, Status> {
        let call = Call::of(&request)?;
        let mut request = request.into_inner();
        let request_id = std::mem::take(&mut request.request_id);
        let remember = call.remember("AcknowledgeMailbox", &request_id, &request)?;
        let named = check::optional_id("thread_id", &request.thread_id)?;
        let handle = self
            .session_for(&call, &request.session_id, named, GuardedVerb::Act)
            .await?;
        let target = Self::thread_or_own(&call, &handle, named)?;
        authority::authorize(&handle.state(), &call.caller, "AcknowledgeMailbox", target).map_err(refused)?;
        let command = Command::AcknowledgeMail {
            caller: call.caller.clone(),
            target,
            up_to: Sequence::new(request.up_to_sequence),
        };
        let done = handle
            .execute(command, call.origin(&request_id), remember, Vec::new())
            .await?;
        let thread = done
            .session
            .thread(target)
            .ok_or_else(|| Refusal::ThreadNotFound(target.to_string()))
            .map_err(refused)?;
        Ok(pb::AcknowledgeMailboxResponse {
            remaining: u32::try_from(thread.mail.len()).unwrap_or(u32::MAX),
        })
    }
}
