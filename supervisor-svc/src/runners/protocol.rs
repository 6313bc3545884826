//! Conversion of runner reports to domain reports.

use bytes::Bytes;
use serde_json::json;
use supervisor_log::{codec::parts::usage_from_pb, store::Content};
use troupe_proto::supervisor::v1::{self as pb, runner_report::Kind};

use super::artifacts::{Added, MAX_ARTIFACT_BYTES, ReportPosition, UnfinishedArtifacts};
use crate::{
    clock::Clock,
    domain::{
        command::Report,
        content::{ContentRef, MAX_EVENT_MESSAGE_BYTES, preview, truncate},
        event::{Artifact, OutputDigests, PROMPT_ARTIFACT},
        ids::{Digest, InputNumber, Turn},
        rules::orchestration,
        settings::PromptLog,
        status::Settled,
    },
};

/// The maximum length of an artifact's name, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 256;
/// The maximum length of an artifact's kind, in bytes.
pub(crate) const MAX_KIND_BYTES: usize = 64;
/// The maximum length of an artifact's media type, in bytes.
pub(crate) const MAX_MEDIA_TYPE_BYTES: usize = 128;
/// The maximum length of the detail of a program's end or of a policy gap, in bytes.
pub(crate) const MAX_DETAIL_BYTES: usize = 1_024;

/// The result of reading a report.
pub(super) enum ReadReport {
    /// A report for the session to decide, with the content that it refers to.
    Report(Box<(Report, Vec<Content>)>),
    /// A part of an incomplete artifact. It must not be acknowledged: the acknowledgement of the last part covers all
    /// parts.
    Part,
    /// A report that changes no state.
    Ignored,
}

/// Converts a runner's report to a domain report, combined with its earlier parts. `log` selects how much of a prompt
/// is stored.
pub(super) fn read_report(
    position: ReportPosition,
    report: pb::RunnerReport,
    unfinished: &mut UnfinishedArtifacts,
    log: PromptLog,
    clock: &Clock,
) -> ReadReport {
    let mut contents = Vec::new();
    let Some(kind) = report.kind else {
        unfinished.interrupt(position.thread);
        return ReadReport::Ignored;
    };
    if !matches!(kind, Kind::Artifact(_)) {
        unfinished.interrupt(position.thread);
    }
    let report = match kind {
        Kind::TurnStarted(started) => Report::TurnStarted {
            turn: Turn::new(started.turn),
        },
        Kind::TurnEnded(ended) => turn_ended(ended, &mut contents),
        Kind::InputDelivered(delivered) => Report::InputDelivered {
            number: InputNumber::new(delivered.number),
            turn: Turn::new(delivered.turn),
        },
        Kind::Artifact(piece) => match unfinished.add(position, bounded(piece)) {
            Added::Whole(whole) => Report::Artifact(artifact(whole, clock, &mut contents)),
            Added::Unfinished => return ReadReport::Part,
            Added::Dropped => return ReadReport::Ignored,
        },
        Kind::Prompt(prompt) => match prompt_artifact(&prompt, log) {
            Some(whole) => Report::Artifact(artifact(whole, clock, &mut contents)),
            None => return ReadReport::Ignored,
        },
        Kind::Stopped(stopped) => Report::Stopped {
            detail: truncate(&stopped.detail, MAX_DETAIL_BYTES).to_owned(),
        },
        Kind::PolicyGap(gap) => Report::PolicyGap(truncate(&gap.gap, MAX_DETAIL_BYTES).to_owned()),
        Kind::ContextLost(lost) => Report::ContextLost(truncate(&lost.reason, MAX_DETAIL_BYTES).to_owned()),
    };
    ReadReport::Report(Box::new((report, contents)))
}

fn artifact(whole: pb::ArtifactReport, clock: &Clock, contents: &mut Vec<Content>) -> Artifact {
    Artifact {
        id: clock.new_id(),
        name: whole.name,
        kind: whole.kind,
        media_type: whole.media_type,
        content: store_content(whole.data, String::new(), contents),
        turn: Turn::new(whole.turn),
    }
}

/// Returns an artifact, or a piece of one, with its texts cut to their limits.
fn bounded(piece: pb::ArtifactReport) -> pb::ArtifactReport {
    pb::ArtifactReport {
        name: label(&piece.name, MAX_NAME_BYTES),
        kind: label(&piece.kind, MAX_KIND_BYTES),
        media_type: label(&piece.media_type, MAX_MEDIA_TYPE_BYTES),
        ..piece
    }
}

/// Returns a runner's short text without control characters, cut to `max` bytes.
fn label(text: &str, max: usize) -> String {
    let shown: String = text.chars().filter(|c| !c.is_control()).collect();
    truncate(shown.trim(), max).to_owned()
}

/// Returns the prompt that the program received, as an artifact. Returns `None` if prompts are not stored or the prompt
/// is larger than an artifact may be.
fn prompt_artifact(prompt: &pb::PromptReport, log: PromptLog) -> Option<pb::ArtifactReport> {
    let stores_texts = match log {
        PromptLog::Full => true,
        PromptLog::Hashes => false,
        PromptLog::Off => return None,
    };
    let blocks: Vec<serde_json::Value> = prompt
        .blocks
        .iter()
        .map(|block| {
            json!({
                "kind": block.kind().as_str_name(),
                "sha256": Digest::of(block.text.as_bytes()).to_string(),
                "text": stores_texts.then_some(&block.text),
            })
        })
        .collect();
    let data = Bytes::from(json!(blocks).to_string());
    if data.len() > MAX_ARTIFACT_BYTES {
        tracing::warn!(
            turn = prompt.turn,
            bytes = data.len(),
            "the prompt of a program is too large to be stored"
        );
        return None;
    }
    Some(pb::ArtifactReport {
        turn: prompt.turn,
        name: format!("prompt of turn {}", prompt.turn),
        kind: PROMPT_ARTIFACT.to_owned(),
        media_type: String::from("application/json"),
        data,
        append: false,
        more: false,
    })
}

fn turn_ended(ended: pb::TurnEndedReport, contents: &mut Vec<Content>) -> Report {
    let outcome = ended.outcome();
    let (message, content) = message(ended.message, contents);
    let outcome = match outcome {
        pb::TurnOutcome::Completed => Settled::Completed {
            message: (!message.is_empty()).then_some(message),
            content,
        },
        pb::TurnOutcome::Interrupted => Settled::Interrupted { reason: message },
        pb::TurnOutcome::Errored | pb::TurnOutcome::Unspecified => Settled::Errored { message, content },
    };
    Report::TurnEnded {
        turn: Turn::new(ended.turn),
        outcome,
        usage: ended
            .usage
            .and_then(|usage| usage_from_pb(usage).ok())
            .unwrap_or_default(),
        price: None,
        digests: OutputDigests {
            output: ended.output_sha256.parse().ok(),
            diff: ended.diff_sha256.parse().ok(),
        },
        runner_stopped: ended.runner_stopped,
        result: None,
    }
}

/// Returns the excerpt of a message that an event carries. If the message is longer, the full text is added to
/// `contents`.
fn message(text: String, contents: &mut Vec<Content>) -> (String, Option<ContentRef>) {
    if text.len() <= MAX_EVENT_MESSAGE_BYTES {
        return (text, None);
    }
    let short = orchestration::excerpt(&text, MAX_EVENT_MESSAGE_BYTES);
    let preview = preview(&text);
    (
        short,
        Some(store_content(Bytes::from(text.into_bytes()), preview, contents)),
    )
}

fn store_content(bytes: Bytes, preview: String, contents: &mut Vec<Content>) -> ContentRef {
    let content = Content::new(bytes);
    let reference = content.reference(preview);
    contents.push(content);
    reference
}
