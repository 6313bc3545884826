//! Prompts sent to threads. Each prompt is a record in the log, and its texts are stored as separate content.

use supervisor_log::store::MarkKind;
use tonic::{Code, Status};
use troupe_proto::{fault::Fault, reason::Reason, supervisor::v1 as pb};

use super::{call::Call, diff, marks::Marks, page::Page, parse, service::SupervisorService};
use crate::{
    convert::{self, Redaction, status::refused},
    domain::{
        event::{BlockRef, Event, Recorded, ThreadEvent},
        ids::SessionId,
        rejection::Rejection,
        settings::PromptLog,
    },
    engine::{Failure, Handle, read_content},
};

/// Maximum total size of the texts in a response, in bytes. Texts beyond the limit are omitted.
pub(crate) const TEXT_BYTES: u64 = 3 * 1_024 * 1_024;
/// Maximum total size of two prompts to compare, in bytes. A diff has at most about twice this size, so it fits into a
/// response together with the texts.
pub(crate) const DIFF_BYTES: u64 = 1_024 * 1_024;

/// A prompt in the log.
pub(super) struct Sent {
    pub(super) shown: pb::Prompt,
    blocks: Vec<BlockRef>,
}

impl Sent {
    pub(super) fn of(recorded: &Recorded) -> Option<Self> {
        let Event::Thread(_, ThreadEvent::TurnDispatched { blocks, .. }) = &recorded.event else {
            return None;
        };
        Some(Self {
            shown: convert::marked::prompt(recorded)?,
            blocks: blocks.clone(),
        })
    }

    /// Returns the total size of the prompt's texts, in bytes.
    fn size(&self) -> u64 {
        self.blocks.iter().map(|block| block.content.size).sum()
    }
}

pub(super) async fn list_prompts(
    call: Call<'_>,
    mut request: pb::ListPromptsRequest,
) -> Result<pb::ListPromptsResponse, Status> {
    let page = Page::of(&mut request, &call.scope)?;
    let (handle, target) = call.authorized_thread(&request.session_id, &request.thread_id).await?;
    let marks = call.service.marks(handle.id(), MarkKind::Prompt, Some(target));
    let (prompts, next_page_token) = marks.page(&page, convert::marked::prompt).await?;
    Ok(pb::ListPromptsResponse {
        prompts,
        next_page_token,
    })
}

pub(super) async fn get_prompt(call: Call<'_>, request: pb::GetPromptRequest) -> Result<pb::GetPromptResponse, Status> {
    if request.turn == 0 {
        return Err(parse::bad("turn", "turn is required; turns count from 1"));
    }
    let (handle, target) = call.authorized_thread(&request.session_id, &request.thread_id).await?;
    let marks = call.service.marks(handle.id(), MarkKind::Prompt, Some(target));
    let mut sent = sent_for(&marks, request.turn).await?;
    let diff = match request.diff_with_turn {
        0 => String::new(),
        turn => {
            may_compare(call.redaction, keeps_texts(&handle)).map_err(refused)?;
            let earlier = sent_for(&marks, turn).await?;
            call.service.compare(handle.id(), &earlier, &sent).await?
        }
    };
    call.service.add_texts(call.redaction, &handle, &mut sent).await?;
    Ok(pb::GetPromptResponse {
        prompt: Some(sent.shown),
        diff,
    })
}

impl SupervisorService {
    /// Adds the stored texts to a prompt, as far as the caller may read them and they fit into the response.
    pub(super) async fn add_texts(
        &self,
        redaction: Redaction,
        handle: &Handle,
        sent: &mut Sent,
    ) -> Result<(), Failure> {
        if !keeps_texts(handle) || !redaction.has_texts() {
            return Ok(());
        }
        let mut room = TEXT_BYTES;
        let left_out = sent.shown.texts_left_out;
        for (shown, block) in sent.shown.blocks.iter_mut().zip(&sent.blocks) {
            if let Some(left) = room.checked_sub(block.content.size) {
                room = left;
                shown.text = self.text(handle.id(), block, left_out).await?.unwrap_or_default();
            }
        }
        Ok(())
    }

    async fn compare(&self, session: SessionId, earlier: &Sent, later: &Sent) -> Result<String, Status> {
        let size = earlier.size().saturating_add(later.size());
        if size > DIFF_BYTES {
            let message = format!("the two prompts have {size} bytes; at most {DIFF_BYTES} are compared: read both");
            return Err(refused(Rejection::LimitExceeded {
                limit: "diff_bytes",
                message,
            }));
        }
        let earlier = self.side(session, earlier).await?;
        let later = self.side(session, later).await?;
        // Runs on a blocking thread: each kind of block may take as long as the diff's time limit.
        tokio::task::spawn_blocking(move || diff::unified(&earlier, &later))
            .await
            .map_err(|error| {
                let text = format!("the prompts could not be compared: {error}");
                Fault::new(Code::Internal, Reason::Internal, text).into()
            })
    }

    async fn side(&self, session: SessionId, sent: &Sent) -> Result<diff::Side, Failure> {
        let mut blocks = Vec::new();
        for block in &sent.blocks {
            let Some(text) = self.text(session, block, sent.shown.texts_left_out).await? else {
                let text = format!(
                    "the texts of the prompt of turn {} were left out, since the session had no room for them; leave \
                     diff_with_turn out",
                    sent.shown.turn
                );
                return Err(Rejection::IllegalState(text).into());
            };
            blocks.push((block.kind, text));
        }
        Ok(diff::Side {
            turn: sent.shown.turn,
            blocks,
        })
    }

    /// Returns the text of a block; `None` if it was omitted when its prompt was stored.
    async fn text(&self, session: SessionId, block: &BlockRef, left_out: bool) -> Result<Option<String>, Failure> {
        let digest = block.content.digest;
        let store = self.directory.store();
        if left_out && store.content(session, digest).await?.is_none() {
            return Ok(None);
        }
        let bytes = read_content(store.as_ref(), session, digest).await?;
        let text = String::from_utf8(bytes.into());
        text.map(Some)
            .map_err(|error| Failure::Corrupt(format!("content {digest}: {error}")))
    }
}

fn keeps_texts(handle: &Handle) -> bool {
    match handle.state().settings.prompt_log {
        PromptLog::Full => true,
        PromptLog::Hashes | PromptLog::Off => false,
    }
}

/// Finds the prompt of a turn. The turn numbers of a thread increase, and each turn has one dispatch.
async fn sent_for(marks: &Marks, turn: u32) -> Result<Sent, Status> {
    let is_later = |recorded: &Recorded| Sent::of(recorded).is_some_and(|sent| sent.shown.turn > turn);
    let last = marks.last_before(is_later).await?;
    last.as_ref()
        .and_then(Sent::of)
        .filter(|sent| sent.shown.turn == turn)
        .ok_or_else(|| {
            let id = format!("of turn {turn}");
            refused(Rejection::Missing { what: "prompt", id })
        })
}

/// Checks that the caller may compare prompts: a diff reveals their texts.
fn may_compare(redaction: Redaction, keeps_texts: bool) -> Result<(), Rejection> {
    if !redaction.has_texts() {
        let text = "viewers see digests of prompts, not their texts; leave diff_with_turn out";
        return Err(Rejection::NotPermitted(text.to_owned()));
    }
    if !keeps_texts {
        let text = "the session keeps no texts of prompts that could be compared; open one with prompt_log FULL";
        return Err(Rejection::IllegalState(text.to_owned()));
    }
    Ok(())
}
