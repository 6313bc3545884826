//! One dispatch of a turn: choose a runner, build the prompt, record the dispatch, and send it when it is
//! durable. Runs concurrently with the actor and never blocks it.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use supervisor_log::{
    codec::{WireEnum as _, policy},
    store::Content,
};
use svc_kit::identity::ThreadPrincipal;
use troupe_proto::{common::v1 as common, supervisor::v1 as pb};

use super::{placement::Need, services::Services};
use crate::{
    domain::{
        command::{Command, Dispatch},
        content::{ContentRef, preview, truncate},
        event::{BlockKind, BlockRef, PromptExtent},
        ids::{Digest, Generation, RunnerId, Sequence, ThreadId},
        rules::{
            authorize, limits,
            prompt::{self, Assignment, HandoffText, Incoming},
        },
        settings::{Mode, PromptLog},
        state::{
            mailbox::Body,
            session::Session,
            thread::{LatestTurn, Thread},
        },
    },
    engine::{Failure, Handle, Origin, feed::Active, read_content, read_message},
};

/// A dispatch in flight.
pub(super) struct DispatchJob {
    services: Arc<Services>,
    handle: Handle,
    session: Arc<Session>,
    thread: Arc<Thread>,
    runner: RunnerId,
    generation: Generation,
    extent: PromptExtent,
}

/// The result of a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DispatchEnd {
    /// The dispatch is recorded and sent. Or it is not recorded, because the thread changed in the meantime or the
    /// record was too large and the turn has ended.
    Done,
    /// The dispatch is recorded, but the runner was not reachable or no longer holds the attempt. The holder must be
    /// checked.
    Undelivered,
    /// The dispatch failed. An immediate retry would fail for the same reason.
    Failed,
}

/// The prompt of a turn.
struct Prompt {
    resolved: common::ResolvedSpawn,
    /// The blocks to send.
    blocks: Vec<common::PromptBlock>,
    /// References to the stored part of the effective prompt.
    refs: Vec<BlockRef>,
    whole: Option<Digest>,
    contents: Vec<Content>,
    inputs: Vec<pb::Input>,
}

impl DispatchJob {
    /// Chooses a suitable runner and reserves it for the thread. A runner that still has the program continues with it.
    /// Any other placement is a new attempt, unless the present attempt was never dispatched. Returns `None` if no
    /// suitable runner has a free slot.
    pub fn begin(
        services: &Arc<Services>,
        active: &Active<'_>,
        id: ThreadId,
        last_runner: Option<RunnerId>,
    ) -> Option<Self> {
        let (session, hub) = (active.session, &services.hub);
        let thread = Arc::clone(session.thread(id)?);
        let same = last_runner
            .as_ref()
            .filter(|runner| hub.resume(runner, id, thread.generation));
        let (runner, generation, extent) = match same {
            Some(runner) => (runner.clone(), thread.generation, PromptExtent::Delta),
            None => {
                let generation = thread.next_attempt();
                let runner = hub.place(&Need::of(session, &thread), id, generation)?;
                (runner, generation, PromptExtent::Full)
            }
        };
        Some(Self {
            services: Arc::clone(services),
            handle: active.handle.clone(),
            session: Arc::clone(session),
            thread,
            runner,
            generation,
            extent,
        })
    }

    /// Dispatches the turn.
    pub async fn run(&self) -> DispatchEnd {
        match self.dispatch().await {
            Ok(end) => end,
            Err(failure) => {
                tracing::warn!(thread = %self.thread.id, %failure, "turn not dispatched");
                self.release();
                match failure {
                    Failure::TooLarge(why) => self.reject_turn(&why).await,
                    _ => DispatchEnd::Failed,
                }
            }
        }
    }

    /// Ends a turn whose record is too large, because a retry would be as large.
    async fn reject_turn(&self, why: &str) -> DispatchEnd {
        let command = Command::RefuseTurn {
            thread: self.thread.id,
            generation: self.thread.generation,
            message: format!("the turn cannot be dispatched: {why}"),
        };
        match self.handle.execute(command, Origin::service(), None, Vec::new()).await {
            Ok(_) => DispatchEnd::Done,
            Err(_) => DispatchEnd::Failed,
        }
    }

    async fn dispatch(&self) -> Result<DispatchEnd, Failure> {
        let mut prompt = self.prompt().await?;
        let command = Command::Dispatch(Box::new(Dispatch {
            thread: self.thread.id,
            runner: self.runner.clone(),
            generation: self.generation,
            inputs: self.thread.pending_inputs.iter().map(|input| input.number).collect(),
            blocks: std::mem::take(&mut prompt.refs),
            whole: prompt.whole,
            extent: self.extent,
            mail_up_to: prompt::shown_mail(&self.thread)
                .last()
                .map_or(Sequence::ZERO, |letter| letter.sequence),
        }));
        let contents = std::mem::take(&mut prompt.contents);
        let done = self.handle.execute(command, Origin::service(), None, contents).await?;
        match done.session.thread(self.thread.id) {
            Some(thread) if done.recorded && matches!(thread.turn, LatestTurn::Dispatched { .. }) => {
                if self.send(thread, prompt) {
                    Ok(DispatchEnd::Done)
                } else {
                    Ok(DispatchEnd::Undelivered)
                }
            }
            // The thread changed in the meantime. The caller checks it again.
            Some(_) | None => {
                self.release();
                Ok(DispatchEnd::Done)
            }
        }
    }

    /// Releases the runner's reservation after a failed dispatch: frees the slot, or marks the program as idle again.
    fn release(&self) {
        let hub = &self.services.hub;
        match self.extent {
            PromptExtent::Full => hub.release(&self.runner, self.thread.id, self.generation),
            PromptExtent::Delta => hub.set_idle(&self.runner, self.thread.id, self.generation),
        }
    }

    async fn prompt(&self) -> Result<Prompt, Failure> {
        let mut resolved: common::ResolvedSpawn = match &self.thread.spawned.role.resolved {
            Some(content) => self.read(content).await?,
            None => common::ResolvedSpawn::default(),
        };
        bind_mode(&mut resolved, self.session.settings.mode);
        let mut inputs: Vec<pb::Input> = Vec::new();
        for input in &self.thread.pending_inputs {
            inputs.push(self.read(&input.content).await?);
        }
        let messages: Vec<String> = inputs.iter().map(input_text).collect();
        let first = self.earlier_first_input().await?;
        let said = |field: fn(&pb::Input) -> &str| {
            let mut texts = first.iter().chain(&inputs).map(field);
            texts.find(|text| !text.is_empty()).unwrap_or_default()
        };
        let assignment = Assignment {
            objective: said(|input| &input.objective),
            definition_of_done: said(|input| &input.definition_of_done),
            result_schema: &self.result_schema(&inputs).await?,
        };
        let handoffs = self.handoffs().await?;
        let incoming = Incoming {
            messages: &messages,
            handoffs: &handoffs,
        };
        let task = prompt::task_block(&self.session, &self.thread, assignment, incoming);
        let mut texts: Vec<(BlockKind, String)> = resolved
            .blocks
            .iter()
            .filter_map(|block| Some((BlockKind::from_number(block.kind).ok()?, block.text.clone())))
            .collect();
        texts.push((BlockKind::Task, task));
        // The overrides of all waiting inputs share one block, because the record of the turn lists every block.
        let overrides = inputs.iter().map(|input| input.r#override.as_str());
        let overrides: Vec<&str> = overrides.filter(|text| !text.is_empty()).collect();
        if !overrides.is_empty() {
            texts.push((BlockKind::Override, overrides.join("\n\n")));
        }

        let (keeps_digests, keeps_texts) = match self.session.settings.prompt_log {
            PromptLog::Full => (true, true),
            PromptLog::Hashes => (true, false),
            PromptLog::Off => (false, false),
        };
        let mut prompt = Prompt {
            resolved,
            blocks: Vec::new(),
            refs: Vec::new(),
            whole: keeps_digests.then(|| digest_of_whole(&texts)),
            contents: Vec::new(),
            inputs,
        };
        for (kind, text) in texts {
            let digest = Digest::of(text.as_bytes());
            if keeps_digests {
                prompt.refs.push(BlockRef {
                    kind,
                    content: ContentRef {
                        digest,
                        size: text.len() as u64,
                        preview: if keeps_texts { preview(&text) } else { String::new() },
                    },
                });
            }
            if keeps_texts {
                prompt.contents.push(Content {
                    digest,
                    bytes: Bytes::from(text.clone().into_bytes()),
                });
            }
            let sent = match self.extent {
                PromptExtent::Full => true,
                PromptExtent::Delta => matches!(kind, BlockKind::Mode | BlockKind::Task | BlockKind::Override),
            };
            if sent {
                prompt.blocks.push(common::PromptBlock {
                    kind: kind.number(),
                    sha256: digest.to_string(),
                    text,
                });
            }
        }
        Ok(prompt)
    }

    /// Returns the input of the spawn, which states the thread's permanent goal. Returns `None` if the spawn had no
    /// input or the turn already includes it.
    async fn earlier_first_input(&self) -> Result<Option<pb::Input>, Failure> {
        let Some(content) = &self.thread.spawned.input else {
            return Ok(None);
        };
        let waiting = &self.thread.pending_inputs;
        if waiting.iter().any(|input| input.content.digest == content.digest) {
            return Ok(None);
        }
        self.read(content).await.map(Some)
    }

    /// Returns the schema of the result that the turn has to report. Empty if no result is requested, or if the program
    /// knows the schema from an earlier turn.
    async fn result_schema(&self, inputs: &[pb::Input]) -> Result<String, Failure> {
        let newest = inputs.iter().rev().find(|input| !input.result_schema.is_empty());
        match (newest, &self.thread.result_request, self.extent) {
            (Some(input), ..) => Ok(input.result_schema.clone()),
            (None, Some(request), PromptExtent::Full) => self
                .read::<pb::Input>(&request.input)
                .await
                .map(|input| input.result_schema),
            (None, ..) => Ok(String::new()),
        }
    }

    /// Returns the texts of the handoffs that the prompt shows.
    async fn handoffs(&self) -> Result<BTreeMap<Sequence, HandoffText>, Failure> {
        let mut texts = BTreeMap::new();
        for letter in prompt::shown_mail(&self.thread) {
            if let Body::Handoff(handoff) = &letter.body {
                let structured = match &handoff.structured {
                    Some(content) => self.beginning(content).await?,
                    None => String::new(),
                };
                let message = self.beginning(&handoff.message).await?;
                texts.insert(letter.sequence, HandoffText { message, structured });
            }
        }
        Ok(texts)
    }

    /// Returns the beginning of a text, up to the maximum length in a prompt.
    async fn beginning(&self, content: &ContentRef) -> Result<String, Failure> {
        let bytes = read_content(self.services.store.as_ref(), self.session.id, content.digest).await?;
        let text = String::from_utf8_lossy(&bytes);
        Ok(truncate(&text, prompt::MAX_TEXT_BYTES).to_owned())
    }

    async fn read<M: prost::Message + Default>(&self, content: &ContentRef) -> Result<M, Failure> {
        read_message(self.services.store.as_ref(), self.session.id, content).await
    }

    /// Sends the turn to its runner. Returns whether the message was queued.
    fn send(&self, thread: &Thread, prompt: Prompt) -> bool {
        let turn = pb::Turn {
            turn: thread.turn.number().get(),
            blocks: prompt.blocks,
            extent: self.extent.number(),
            inputs: prompt.inputs,
            traceparent: thread.traceparent.as_deref().unwrap_or_default().to_owned(),
            // Uses the same state as the prompt's mode block.
            docs_directory: match self.session.settings.mode {
                Mode::Planning => authorize::docs_directory(&self.session).unwrap_or_default(),
                Mode::Implementation => String::new(),
            },
            repeats: thread.repeats_turn,
        };
        match self.extent {
            PromptExtent::Delta => self
                .services
                .hub
                .deliver_turn(&self.runner, thread.id, self.generation, turn),
            PromptExtent::Full => {
                let token = self.services.keys.mint(&ThreadPrincipal {
                    session: self.session.id.as_uuid(),
                    thread: thread.id.as_uuid(),
                    generation: self.generation.get(),
                });
                let working_directory = self.session.workspace(thread).to_owned();
                self.services.hub.start(
                    &self.runner,
                    thread.id,
                    self.generation,
                    pb::StartThread {
                        command_id: format!("start:{}:{}", thread.id, self.generation),
                        session_id: self.session.id.to_string(),
                        thread_id: thread.id.to_string(),
                        generation: self.generation.get(),
                        resolved: Some(prompt.resolved),
                        tool_policy: Some(policy::to_proto(&thread.effective)),
                        working_directory,
                        turn: Some(turn),
                        thread_token: token,
                        supervisor_url: self.services.public_url.get().cloned().unwrap_or_default(),
                        depth: thread.spawned.depth,
                        may_spawn: limits::may_spawn(&self.session, thread),
                        display_name: thread.display_name(),
                    },
                )
            }
        }
    }
}

/// Replaces the mode block from the spawn's resolution with the block of the session's present mode.
fn bind_mode(resolved: &mut common::ResolvedSpawn, present: Mode) {
    // If the registry does not list the modes' blocks, the block of the resolution stays.
    if resolved.mode_blocks.is_empty() {
        return;
    }
    let block = resolved
        .mode_blocks
        .iter()
        .find(|known| known.mode == present.number())
        .and_then(|known| known.block.clone());
    resolved.blocks.retain(|block| block.kind != BlockKind::Mode.number());
    resolved.blocks.extend(block);
}

/// Returns an input as the text of the task block.
fn input_text(input: &pb::Input) -> String {
    use pb::input_item::Item;
    let parts: Vec<String> = input
        .items
        .iter()
        .filter_map(|item| item.item.as_ref())
        .map(|item| match item {
            Item::Text(text) => text.clone(),
            Item::LocalImage(path) => format!("[local_image:{path}]"),
            Item::Skill(skill) => format!("[skill:${}]({})", skill.name, skill.path),
            Item::Mention(mention) => format!("[mention:${}]({})", mention.name, mention.path),
        })
        .collect();
    parts.join("\n")
}

/// Returns the SHA-256 of a prompt as an agent reads it: its non-blank blocks, joined by a blank line.
fn digest_of_whole(blocks: &[(BlockKind, String)]) -> Digest {
    let texts: Vec<&str> = blocks
        .iter()
        .map(|(_, text)| text.as_str())
        .filter(|text| !text.trim().is_empty())
        .collect();
    Digest::of(texts.join("\n\n").as_bytes())
}
