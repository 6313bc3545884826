//! Exports of sessions: everything that a session recorded, as one stream.

use std::sync::Arc;

use supervisor_log::codec::{event_to_pb, parts::time_to_pb};
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};
use troupe_proto::{
    fault::Fault,
    reason::Reason,
    supervisor::v1::{self as pb, export_session_response::Record},
};

use super::{call::Call, content::PART_WITHIN, prompts::Sent, service::SupervisorService, transcripts::Reader};
use crate::{
    convert::{self, Redaction, View},
    domain::{event::Recorded, ids::Sequence, state::session::Session},
    engine::{Failure, Handle, read_log},
};

/// The version of the format.
const FORMAT_VERSION: u32 = 1;
/// Maximum number of records that wait for their reader.
const OUTBOX: usize = 64;
/// Maximum number of transcript entries in memory.
const ENTRIES: usize = 128;

pub(super) async fn export_session(
    call: Call<'_>,
    request: pb::ExportSessionRequest,
) -> Result<ReceiverStream<Result<pb::ExportSessionResponse, Status>>, Status> {
    let handle = call.own_or_named(&request.session_id).await?;
    // The additional slot is for the error of an early end.
    let (outbox, records) = mpsc::channel(OUTBOX + 1);
    let Ok(reserved) = outbox.clone().reserve_owned().await else {
        return Ok(ReceiverStream::new(records));
    };
    let export = Export {
        service: call.service.clone(),
        redaction: call.redaction,
        session: handle.state(),
        handle,
        has_prompt_texts: request.prompt_texts,
        outbox,
    };
    tokio::spawn(async move {
        if let Err(status) = export.run().await {
            reserved.send(Err(status));
        }
    });
    Ok(ReceiverStream::new(records))
}

/// An export under way.
struct Export {
    service: SupervisorService,
    /// The session as of the call.
    session: Arc<Session>,
    handle: Handle,
    redaction: Redaction,
    has_prompt_texts: bool,
    outbox: mpsc::Sender<Result<pb::ExportSessionResponse, Status>>,
}

impl Export {
    async fn run(&self) -> Result<(), Status> {
        let store = self.service.directory.store();
        self.send(Record::Header(pb::ExportHeader {
            format_version: FORMAT_VERSION,
            time: Some(time_to_pb(self.service.clock().now())),
            release: env!("CARGO_PKG_VERSION").to_owned(),
            log_id: store.log_id().to_string(),
        }))
        .await?;
        let redaction = self.redaction;
        let session = redaction.session(convert::thread::session(&self.session));
        self.send(Record::Session(session)).await?;
        let view = View {
            redaction,
            ..View::default()
        };
        for thread in self.session.in_spawn_order() {
            let shown = self.service.watches.view.show(&self.session, thread, view);
            self.send(Record::Thread(shown)).await?;
        }
        self.events().await?;
        for thread in self.session.in_spawn_order() {
            let reader = Reader::new(&self.service, self.handle.clone(), thread.id, &[], redaction)?;
            let mut after = 0;
            loop {
                let entries = reader.entries(after, ENTRIES).await?;
                let Some(last) = entries.last() else { break };
                after = last.number;
                for entry in entries {
                    let entry = pb::ExportedEntry {
                        thread_id: thread.id.to_string(),
                        entry: Some(entry),
                    };
                    self.send(Record::Entry(entry)).await?;
                }
            }
        }
        Ok(())
    }

    /// Sends the events, each followed by the prompt or artifact that it records.
    async fn events(&self) -> Result<(), Status> {
        let store = self.service.directory.store();
        let head = store.head(self.session.id).await.map_err(Failure::from)?;
        let mut after = head.map_or(Sequence::ZERO, |head| head.oldest);
        loop {
            let events = read_log(store.as_ref(), self.session.id, after, self.session.sequence).await?;
            let Some(last) = events.last() else { return Ok(()) };
            after = last.sequence;
            for recorded in events.iter().filter(|event| event.sequence <= self.session.sequence) {
                self.send_event(recorded).await?;
            }
        }
    }

    async fn send_event(&self, recorded: &Recorded) -> Result<(), Status> {
        let event = self.redaction.event(event_to_pb(self.session.id, recorded));
        self.send(Record::Event(event)).await?;
        if let Some(mut sent) = Sent::of(recorded) {
            if self.has_prompt_texts {
                self.service.add_texts(self.redaction, &self.handle, &mut sent).await?;
            }
            self.send(Record::Prompt(sent.shown)).await?;
        }
        if let Some(artifact) = convert::marked::artifact(recorded) {
            self.send(Record::Artifact(artifact)).await?;
        }
        Ok(())
    }

    async fn send(&self, record: Record) -> Result<(), Status> {
        let message = pb::ExportSessionResponse { record: Some(record) };
        match timeout(PART_WITHIN, self.outbox.send(Ok(message))).await {
            Ok(sent) => sent.map_err(|_| Status::cancelled("the client disconnected")),
            Err(_) => {
                let seconds = PART_WITHIN.as_secs();
                let text = format!("no record was taken for {seconds} s; export the session again");
                Err(Fault::new(Code::DeadlineExceeded, Reason::DeadlineExceeded, text).into())
            }
        }
    }
}
