//! `troupe export`: writes a whole session as JSON lines, Markdown or HTML.

mod html;
mod markdown;

use std::{collections::BTreeMap, time::SystemTime};

use clap_complete::ArgValueCompleter;
use troupe_client::Supervisor;
use troupe_proto::supervisor::v1::{
    ExportSessionRequest, ExportSessionResponse, Session, Thread, TranscriptEntry, export_session_response::Record,
};

use crate::{
    complete, content,
    context::Context,
    error::{Error, Kind, Result},
    ids, json,
    output::Format,
};

const AFTER_HELP: &str = "\
Examples:
  troupe export
  troupe export fa11aa -o jsonl >session.jsonl
  troupe export fa11aa -o html >session.html
  troupe export fa11aa --prompts -o html >session.html

Markdown is the default. The HTML file needs no network. With JSON lines, each line is a
record: a header, the session, its threads, events, prompts and artifacts, and the entries of
the transcripts.";

/// The arguments of `export`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Session: an id, or the beginning or the end of one [default: the current session]
    #[arg(value_name = "SESSION", add = ArgValueCompleter::new(complete::sessions))]
    session: Option<String>,
    /// Include the texts of the prompts
    #[arg(long)]
    prompts: bool,
}

/// Writes the session to standard output.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let session_id = ids::session_or_current(&mut supervisor, args.session.as_deref()).await?;
    let request = ExportSessionRequest {
        session_id: session_id.clone(),
        prompt_texts: args.prompts,
    };
    let mut records = supervisor.export_session(request).await?.into_inner();
    let mut export = Export::default();
    let format = context.ui.format();
    let is_document = matches!(format, Format::Table | Format::Wide | Format::Markdown | Format::Html);
    while let Some(record) = records.message().await? {
        if is_document {
            export.add(record);
        } else {
            context.ui.value(&json::message(&record))?;
        }
    }
    if !is_document {
        return Ok(());
    }
    export.fetch_texts(&mut supervisor, &session_id).await?;
    let shown = match format {
        Format::Html => html::document(&export),
        _ => markdown::document(&export),
    };
    context.ui.line(shown.trim_end())
}

/// The parts of an export that a document shows.
#[derive(Debug, Default)]
struct Export {
    session: Session,
    /// In spawn order.
    threads: Vec<Thread>,
    /// The transcripts, by thread.
    transcripts: BTreeMap<String, Vec<TranscriptEntry>>,
    /// The stored texts of prompts, by thread and turn.
    prompts: BTreeMap<(String, u32), String>,
}

impl Export {
    fn add(&mut self, record: ExportSessionResponse) {
        match record.record {
            Some(Record::Session(session)) => self.session = session,
            Some(Record::Thread(thread)) => self.threads.push(thread),
            Some(Record::Entry(exported)) => {
                let transcript = self.transcripts.entry(exported.thread_id).or_default();
                transcript.extend(exported.entry);
            }
            Some(Record::Prompt(prompt)) => {
                let texts = prompt.blocks.iter().map(|block| block.text.trim());
                let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
                if !texts.is_empty() {
                    self.prompts.insert((prompt.thread_id, prompt.turn), texts.join("\n\n"));
                }
            }
            Some(Record::Header(_) | Record::Event(_) | Record::Artifact(_)) | None => {}
        }
    }

    /// Reads the texts that are too long to be part of their entries. Viewers do not receive these texts.
    async fn fetch_texts(&mut self, supervisor: &mut Supervisor, session: &str) -> Result<()> {
        for entry in self.transcripts.values_mut().flatten() {
            let Some(content) = entry.content.as_ref().filter(|content| !content.preview.is_empty()) else {
                continue;
            };
            match content::text(supervisor, session, &content.digest).await {
                Ok(text) => entry.text = text,
                Err(error) if error.kind() == Kind::NotFound => entry.text_left_out = true,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn transcript(&self, thread: &Thread) -> &[TranscriptEntry] {
        self.transcripts
            .get(&thread.thread_id)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    /// Returns the prompts of a thread, by turn.
    fn prompts(&self, thread: &Thread) -> impl Iterator<Item = (u32, &str)> {
        let key = |turn| (thread.thread_id.clone(), turn);
        let prompts = self.prompts.range(key(0)..=key(u32::MAX));
        prompts.map(|((_, turn), text)| (*turn, text.as_str()))
    }

    /// Returns the first and the last known time of a thread, in seconds since the epoch.
    fn span(&self, thread: &Thread) -> Option<(f64, f64)> {
        let created = thread.create_time.as_ref();
        let settled = thread.status.as_ref().and_then(|status| status.since.as_ref());
        let entries = self.transcript(thread).iter().filter_map(|entry| entry.time.as_ref());
        let times = created.into_iter().chain(settled).chain(entries);
        let seconds = times.filter_map(|time| {
            let time = SystemTime::try_from(*time).ok()?;
            Some(time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs_f64())
        });
        seconds.fold(None, |span, time| match span {
            None => Some((time, time)),
            Some((first, last)) => Some((f64::min(first, time), f64::max(last, time))),
        })
    }
}

/// Returns the error if the format is a document format, which only `export` supports.
pub(crate) fn check_other_command(format: &Format) -> Option<Error> {
    let is_document = matches!(format, Format::Markdown | Format::Html);
    is_document.then(|| Error::usage(format!("only `troupe export` writes {format}")).hint("use --output json"))
}

#[cfg(test)]
mod tests {
    use prost_types::Timestamp;
    use troupe_proto::supervisor::v1::{Status, StatusKind, ToolVerdict, TranscriptKind, TranscriptToolCall};

    use super::*;

    fn at(seconds: i64) -> Option<Timestamp> {
        Some(Timestamp { seconds, nanos: 0 })
    }

    /// A session with a root and one thread whose texts try to break out of the document.
    pub(super) fn sample() -> Export {
        let thread = |id: &str, parent: &str, kind: StatusKind, from, to| Thread {
            thread_id: id.to_owned(),
            parent_thread_id: parent.to_owned(),
            agent_type: "explorer".to_owned(),
            alias: format!("alias of {id}"),
            create_time: at(from),
            status: Some(Status {
                kind: kind.into(),
                since: at(to),
                ..Status::default()
            }),
            ..Thread::default()
        };
        let entry = |number, kind: TranscriptKind, text: &str| TranscriptEntry {
            number,
            turn: 1,
            kind: kind.into(),
            text: text.to_owned(),
            time: at(60 + i64::try_from(number).unwrap_or_default()),
            ..TranscriptEntry::default()
        };
        let call = TranscriptEntry {
            tool_call: Some(TranscriptToolCall {
                tool: "exec_command".to_owned(),
                verdict: ToolVerdict::Allowed.into(),
                ..TranscriptToolCall::default()
            }),
            ..entry(2, TranscriptKind::ToolCall, "{\"command\":\"ls\"}")
        };
        let entries = vec![
            entry(1, TranscriptKind::Input, "<script>alert('&')</script>"),
            call,
            entry(3, TranscriptKind::Message, "```\n# Not a heading\n```"),
        ];
        Export {
            session: Session {
                session_id: "s-1".to_owned(),
                cwd: "/project".to_owned(),
                ..Session::default()
            },
            threads: vec![
                thread("t-1", "", StatusKind::Running, 60, 60),
                thread("t-2", "t-1", StatusKind::Completed, 61, 160),
            ],
            transcripts: BTreeMap::from([("t-2".to_owned(), entries)]),
            prompts: BTreeMap::from([(("t-2".to_owned(), 1), "Answer <briefly>.".to_owned())]),
        }
    }

    #[test]
    fn span_covers_all_times_of_thread() {
        let export = sample();
        assert_eq!(export.span(&export.threads[1]), Some((61.0, 160.0)));
        assert_eq!(export.span(&Thread::default()), None);
    }
}
