//! What runners say, as commands of the domain.

use bytes::Bytes;
use troupe_proto::supervisor::v1::{self as pb, runner_report::Kind};
use uuid::Uuid;

use crate::{
    domain::{
        command::Report,
        content::{ContentRef, MAX_EVENT_MESSAGE_BYTES, preview, truncate},
        event::Artifact,
        ids::{ArtifactId, InputNumber, Turn},
        orchestration,
        status::Settled,
    },
    session::digest,
    store::Content,
    wire::parts::usage_from_pb,
};

/// The domain's report with the content that it refers to; `None` for reports that change no state.
pub(super) fn from_proto(report: pb::RunnerReport) -> Option<(Report, Vec<Content>)> {
    let mut contents = Vec::new();
    let report = match report.kind? {
        Kind::TurnStarted(started) => Report::TurnStarted {
            turn: Turn::new(started.turn),
        },
        Kind::TurnEnded(ended) => turn_ended(ended, &mut contents),
        Kind::InputDelivered(delivered) => Report::InputDelivered {
            number: InputNumber::new(delivered.number),
            turn: Turn::new(delivered.turn),
        },
        Kind::Artifact(artifact) => Report::Artifact(Artifact {
            id: ArtifactId::from_uuid(Uuid::now_v7()),
            name: truncate(&artifact.name, 256).to_owned(),
            kind: truncate(&artifact.kind, 64).to_owned(),
            media_type: truncate(&artifact.media_type, 128).to_owned(),
            content: keep(artifact.data, String::new(), &mut contents),
            turn: Turn::new(artifact.turn),
        }),
        Kind::Stopped(stopped) => Report::Stopped {
            detail: truncate(&stopped.detail, 1_024).to_owned(),
        },
        Kind::PolicyGap(gap) => Report::PolicyGap(truncate(&gap.gap, 1_024).to_owned()),
        // The dispatched prompt is what was sent: this runner protocol knows no program that changes it.
        Kind::Prompt(_) => return None,
    };
    Some((report, contents))
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
        output: ended.output_sha256.parse().ok(),
    }
}

/// A message as an event carries it: the beginning, and the whole as content where that is longer.
fn message(text: String, contents: &mut Vec<Content>) -> (String, Option<ContentRef>) {
    if text.len() <= MAX_EVENT_MESSAGE_BYTES {
        return (text, None);
    }
    let short = orchestration::excerpt(&text, MAX_EVENT_MESSAGE_BYTES);
    let preview = preview(&text);
    (short, Some(keep(Bytes::from(text.into_bytes()), preview, contents)))
}

fn keep(bytes: Bytes, preview: String, contents: &mut Vec<Content>) -> ContentRef {
    let reference = ContentRef {
        digest: digest(&bytes),
        size: bytes.len() as u64,
        preview,
    };
    contents.push(Content {
        digest: reference.digest,
        bytes,
    });
    reference
}
