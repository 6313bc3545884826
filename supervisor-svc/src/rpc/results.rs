//! ReportResult and AskParent: how an agent answers its parent.

use tonic::{Code, Status};
use troupe_proto::{fault::Fault, reason::Reason, supervisor::v1 as pb};

use super::{call::Call, parse, service::SupervisorService};
use crate::{
    convert::status::refused,
    domain::{
        command::Command,
        decide::result::{no_result_wanted, wants_result},
        state::{session::Session, thread::Thread},
    },
    engine::read_message,
    results::{self, ResultSchema},
};

/// Maximum length of a question, in bytes.
pub(crate) const QUESTION_BYTES: usize = 4 * 1_024;
/// Maximum size of the documents in a response, in bytes.
pub(super) const DOCUMENTS_BYTES: u64 = 1_024 * 1_024;

pub(super) async fn report_result(
    call: Call<'_>,
    mut request: pb::ReportResultRequest,
) -> Result<pb::ReportResultResponse, Status> {
    let (handle, target) = call.authorized_thread(&request.session_id, &request.thread_id).await?;
    let document = std::mem::take(&mut request.document_json);
    if document.trim().is_empty() {
        return Err(parse::bad("document_json", "document_json is required"));
    }
    let state = handle.state();
    if let Some(thread) = state.thread(target).filter(|thread| wants_result(thread)) {
        let schema = schema(call.service, &state, thread).await?;
        let document = document.clone();
        let checked = tokio::task::spawn_blocking(move || match ResultSchema::compile(&schema) {
            Ok(schema) => schema.check(&document),
            Err(problem) => Err(problem),
        });
        let checked = checked.await.map_err(|error| Status::internal(error.to_string()))?;
        checked.map_err(|errors| {
            let text = format!("the result does not match its JSON Schema; correct it and report it again:\n{errors}");
            Fault::new(Code::InvalidArgument, Reason::ResultInvalid, text)
        })?;
    }
    let (result, content) = results::document_content(document);
    let command = Command::ReportResult {
        caller: call.caller.clone(),
        target,
        result,
    };
    let done = call.execute(&handle, command, vec![content]).await?;
    Ok(pb::ReportResultResponse {
        thread: Some(call.service.show(&done.session, target)?),
    })
}

pub(super) async fn ask_parent(call: Call<'_>, request: pb::AskParentRequest) -> Result<pb::AskParentResponse, Status> {
    let (handle, target) = call.authorized_thread(&request.session_id, &request.thread_id).await?;
    parse::text("question", &request.question, QUESTION_BYTES)?;
    let question = request.question.trim();
    if question.is_empty() {
        return Err(parse::bad("question", "question is required"));
    }
    let command = Command::AskParent {
        caller: call.caller.clone(),
        target,
        question: question.to_owned(),
    };
    let done = call.execute(&handle, command, Vec::new()).await?;
    Ok(pb::AskParentResponse {
        thread: Some(call.service.show(&done.session, target)?),
    })
}

/// Returns the schema of the result that the thread's turn has to report.
async fn schema(service: &SupervisorService, session: &Session, thread: &Thread) -> Result<String, Status> {
    let requested = thread.result_request.as_ref().map(|request| request.input.clone());
    // The turn has reported a result, which this one replaces.
    let input = match requested {
        Some(input) => input,
        None => {
            let inputs = thread.turn.inputs();
            let newest = inputs.iter().rev().find(|input| input.result_repairs.is_some());
            let newest = newest.ok_or_else(|| refused(no_result_wanted(thread.id)))?;
            newest.content.clone()
        }
    };
    let input: pb::Input = read_message(service.directory.store().as_ref(), session.id, &input).await?;
    Ok(input.result_schema)
}
