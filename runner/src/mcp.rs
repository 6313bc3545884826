//! Serves a thread's tools as an MCP server, which `troupe mcp` runs for its client. The supervisor supplies the tools
//! and their descriptions for every listing. Every tool call is a call of the thread. A denial is a tool result with
//! Troupe's JSON, so that the model reads it. Only invalid MCP is a protocol error.

use std::sync::Arc;

use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt as _,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
        PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    },
    service::{QuitReason, RequestContext, ServerInitializeError},
    transport::async_rw::AsyncRwTransport,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinError,
};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use troupe_proto::{MAX_MESSAGE_BYTES, reason::Reason, supervisor::v1::ToolDescription};

use crate::{
    bearer::Bearer,
    recorder::Recorder,
    redact::MAX_NAME_CHARS,
    text::one_line,
    tool_hints,
    tool_line::ToolCall,
    tools::{ToolAnswer, ToolFailure, Toolbox, answer_text, schema},
};

/// The server's name.
const NAME: &str = "troupe";
/// The server's instructions, which a client may pass to its model.
const INSTRUCTIONS: &str = "Tools to lead agents of your own: list_agents names their roles, spawn_agent starts one on \
                            a task, wait answers when one has settled, send_input gives it more to do, close_agent ends \
                            it. They run beside you; wait for what they found before you rely on it.";

/// Returns whether the tool with that name has annotations for MCP clients.
#[must_use]
pub fn is_annotated(tool: &str) -> bool {
    tool_hints::annotations(tool).is_some()
}

/// The thread whose tools are called, and the credentials of the caller.
#[derive(Clone)]
pub enum Caller {
    /// The thread that the token identifies.
    Thread {
        /// The token.
        token: String,
    },
    /// A thread whose token is not available, on behalf of an operator.
    Operator {
        /// The operator's token. `None`: the supervisor requires none.
        token: Option<String>,
        /// The thread's session.
        session_id: String,
        /// The thread.
        thread_id: String,
    },
}

/// The reason why no tools can be served, or why serving ended.
#[derive(Debug, thiserror::Error)]
pub enum McpError {
    /// The token cannot be sent.
    #[error("the token has characters that metadata cannot carry")]
    BadToken,
    /// The supervisor rejects the token, or is not available.
    #[error("the supervisor offers no tools: {0}")]
    Refused(String),
    /// The client does not speak MCP, or supports no version that this server supports.
    #[error("the client does not speak MCP: {0}")]
    Handshake(&'static str),
    /// A bug ended the serving.
    #[error("serving the tools failed: {0}")]
    Defect(#[from] JoinError),
}

/// The tools of one thread, ready for serving.
#[derive(Clone)]
pub struct ToolServer {
    toolbox: Toolbox,
    /// Whether the caller's token has more permissions than the thread.
    is_operator: bool,
    thread_id: String,
    /// Records the calls while the server serves.
    recorder: Option<Recorder>,
}

impl ToolServer {
    /// Connects to the supervisor and returns the tools of the caller's thread.
    ///
    /// # Errors
    ///
    /// The supervisor rejects the token, or is not available.
    pub async fn connect(supervisor: Channel, caller: Caller) -> Result<Self, McpError> {
        let bearer = |token: &str| Bearer::new(token).map_err(|_| McpError::BadToken);
        match caller {
            Caller::Thread { token } => {
                let bearer = bearer(&token)?;
                let toolbox = |thread_id| Toolbox::new(supervisor.clone(), Some(bearer.clone()), thread_id);
                // The token identifies the thread, so most calls need no thread id. But a call that sets the thread's
                // own note needs the id.
                let own = toolbox(String::new()).own_thread().await;
                let own = own.map_err(|failure| McpError::Refused(failure.text().to_owned()))?;
                Ok(Self {
                    toolbox: toolbox(own.thread_id.clone()),
                    is_operator: false,
                    thread_id: own.thread_id,
                    recorder: None,
                })
            }
            Caller::Operator {
                token,
                session_id,
                thread_id,
            } => {
                let bearer = token.as_deref().map(bearer).transpose()?;
                Ok(Self {
                    toolbox: Toolbox::new(supervisor, bearer, thread_id.clone()).on_behalf(session_id),
                    is_operator: true,
                    thread_id,
                    recorder: None,
                })
            }
        }
    }

    /// Returns the id of the thread whose tools are served.
    #[must_use]
    pub fn thread_id(&self) -> &str {
        &self.thread_id
    }

    /// Serves until the client disconnects or `stop` is cancelled. After that, running calls have a few seconds to end.
    /// Their effects are not undone. Only MCP is written to `output`.
    ///
    /// # Errors
    ///
    /// The client does not speak MCP. A disconnected client is not an error.
    pub async fn serve<R, W>(mut self, input: R, output: W, stop: CancellationToken) -> Result<(), McpError>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let (recorder, recording) = Recorder::start(self.toolbox.clone());
        self.recorder = Some(recorder);
        let served = self.exchange(input, output, stop).await;
        recording.finish().await;
        served
    }

    async fn exchange<R, W>(self, input: R, output: W, stop: CancellationToken) -> Result<(), McpError>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        // A line that is longer than every valid message is dropped unread.
        let transport = AsyncRwTransport::new_server(input, output).with_max_line_length(2 * MAX_MESSAGE_BYTES);
        let running = match self.serve_with_ct(transport, stop).await {
            Ok(running) => running,
            Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => return Ok(()),
            // The client's message may contain anything, so the error does not include it.
            Err(ServerInitializeError::ExpectedInitializeRequest(_)) => {
                return Err(McpError::Handshake("it sent another message before initialize"));
            }
            Err(ServerInitializeError::InitializeFailed(_)) => {
                return Err(McpError::Handshake("it supports no version that this server supports"));
            }
            Err(_) => return Err(McpError::Handshake("it did not accept the answer to initialize")),
        };
        match running.waiting().await? {
            QuitReason::JoinError(error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    async fn answer(&self, call: ToolCall) -> ToolAnswer {
        let Some(recorder) = &self.recorder else {
            return self.execute(call).await;
        };
        let recorded = recorder.call(&call).await;
        let answer = self.execute(call).await;
        recorder.result(recorded, &answer).await;
        answer
    }

    async fn execute(&self, call: ToolCall) -> ToolAnswer {
        if self.is_operator {
            let offered = self.toolbox.offered().await?;
            if !offered.iter().any(|tool| tool.name == call.name) {
                let text = format!(
                    "tool {:?} is not offered to this thread",
                    one_line(&call.name, MAX_NAME_CHARS)
                );
                return Err(ToolFailure::new(Reason::ToolDenied, text));
            }
        }
        self.toolbox.call(call).await
    }
}

impl ServerHandler for ToolServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new(NAME, env!("CARGO_PKG_VERSION")).with_title("Troupe"))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        // If the tools cannot be listed, the call fails: an empty list would look like a thread without permissions.
        let offered = self
            .toolbox
            .offered()
            .await
            .map_err(|failure| ErrorData::internal_error(failure.text().to_owned(), Some(failure.to_json())))?;
        Ok(ListToolsResult::with_all_items(
            offered.into_iter().map(mcp_tool).collect(),
        ))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let call = ToolCall {
            id: String::new(),
            name: request.name.trim().to_owned(),
            args: request.arguments.unwrap_or_default(),
            warning: None,
        };
        // Stops waiting for calls that the client cancelled, or whose client has disconnected.
        let answer = tokio::select! {
            answer = Box::pin(self.answer(call)) => answer,
            () = context.ct.cancelled() => Err(ToolFailure::local("the call was cancelled")),
        };
        Ok(result_of(&answer).into())
    }
}

fn mcp_tool(tool: ToolDescription) -> Tool {
    let schema = schema(&tool);
    let annotations = tool_hints::annotations(&tool.name);
    let described = Tool::new(tool.name, tool.description, Arc::new(schema));
    match annotations {
        Some(annotations) => described.with_annotations(annotations),
        None => described,
    }
}

fn result_of(answer: &ToolAnswer) -> CallToolResult {
    let content = vec![ContentBlock::text(answer_text(answer))];
    match answer {
        Ok(_) => CallToolResult::success(content),
        Err(_) => CallToolResult::error(content),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncWriteExt as _, duplex, split};
    use tonic::transport::Endpoint;

    use super::*;

    fn server() -> ToolServer {
        // No server listens at that address, because these tests make no calls.
        let channel = Endpoint::from_static("http://127.0.0.1:9").connect_lazy();
        ToolServer {
            toolbox: Toolbox::new(channel, None, "t".to_owned()),
            is_operator: false,
            thread_id: "t".to_owned(),
            recorder: None,
        }
    }

    #[tokio::test]
    async fn client_without_mcp_initialize_ends_server() {
        let (mut ours, theirs) = duplex(64 * 1024);
        let (input, output) = split(theirs);
        let message = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        ours.write_all(format!("{message}\n").as_bytes()).await.unwrap();
        let ended = server().serve(input, output, CancellationToken::new()).await;
        let error = ended.unwrap_err().to_string();
        assert!(error.contains("before initialize"), "{error}");
    }

    #[test]
    fn tool_description_comes_from_supervisor() {
        let tool = |schema: &str| {
            mcp_tool(ToolDescription {
                name: "wait".to_owned(),
                description: "d".to_owned(),
                input_schema_json: schema.to_owned(),
            })
        };
        let shown = serde_json::to_value(tool(r#"{"type":"object","required":["ids"]}"#)).unwrap();
        let expected = json!({
            "name": "wait", "description": "d", "inputSchema": {"type": "object", "required": ["ids"]},
            "annotations": {
                "title": "Wait for agents", "readOnlyHint": true, "destructiveHint": false, "idempotentHint": true,
                "openWorldHint": false,
            },
        });
        assert_eq!(shown, expected);
        assert_eq!(
            serde_json::to_value(tool("")).unwrap()["inputSchema"],
            json!({"type": "object"})
        );
    }
}
