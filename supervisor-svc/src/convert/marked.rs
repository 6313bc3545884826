//! Marked records as their readers see them: prompts and artifacts.

use supervisor_log::codec::{
    enums::WireEnum as _,
    parts::{content_to_pb, text_or_empty, time_to_pb},
};
use troupe_proto::{common::v1 as common, supervisor::v1 as pb};

use crate::domain::event::{BlockRef, Event, Recorded, ThreadEvent};

/// Returns the prompt of a record, without texts. `None` if the record is not about a prompt.
#[must_use]
pub fn prompt(recorded: &Recorded) -> Option<pb::Prompt> {
    let Event::Thread(thread, event) = &recorded.event else {
        return None;
    };
    let ThreadEvent::TurnDispatched {
        turn,
        generation,
        blocks,
        whole,
        extent,
        ..
    } = event
    else {
        return None;
    };
    Some(pb::Prompt {
        thread_id: thread.to_string(),
        turn: turn.get(),
        time: Some(time_to_pb(recorded.time)),
        sha256: text_or_empty(*whole),
        blocks: blocks.iter().map(block).collect(),
        extent: extent.number(),
        generation: generation.get(),
        texts_left_out: recorded.metadata.contents_left_out,
    })
}

fn block(block: &BlockRef) -> common::PromptBlock {
    common::PromptBlock {
        kind: block.kind.number(),
        text: String::new(),
        sha256: block.content.digest.to_string(),
    }
}

/// Returns the artifact of a record. `None` if the record is not about an artifact.
#[must_use]
pub fn artifact(recorded: &Recorded) -> Option<pb::Artifact> {
    let Event::Thread(thread, ThreadEvent::ArtifactRecorded { artifact, .. }) = &recorded.event else {
        return None;
    };
    Some(pb::Artifact {
        artifact_id: artifact.id.to_string(),
        thread_id: thread.to_string(),
        name: artifact.name.clone(),
        kind: artifact.kind.clone(),
        media_type: artifact.media_type.clone(),
        content: Some(content_to_pb(&artifact.content)),
        turn: artifact.turn.get(),
        create_time: Some(time_to_pb(recorded.time)),
    })
}
