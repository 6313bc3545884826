//! `troupe mcp`: serves the tools of a thread as an MCP server on standard input and output, for the agent program that
//! started it. Standard output carries MCP only; messages for people go to standard error.

use std::time::Duration;

use svc_kit::shutdown::Signals;
use tokio::io;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request};
use troupe_client::{
    Address, Service, Supervisor,
    token::{GivenToken, Token},
};
use troupe_proto::supervisor::v1::{CloseSessionRequest, CreateSessionRequest, GetSessionRequest, GetThreadRequest};
use troupe_runner::mcp::{Caller, ToolServer};

use crate::{
    context::Context,
    error::{Error, Result},
    ids,
    options::ProjectArgs,
    pair, time,
    ui::style,
    workspace::create_session,
};

const AFTER_HELP: &str = "\
Examples:
  claude mcp add troupe -- troupe mcp
  codex mcp add troupe -- troupe mcp
  gemini mcp add troupe troupe mcp
  troupe mcp --session 0000aa01
  troupe mcp --no-cwd --supervisor https://troupe.example.com:50052

The server opens a session for the current directory, with your agent as its root, and closes it when your agent
disconnects. In a thread of Troupe, with TROUPE_THREAD_TOKEN in the environment, it serves the tools of that thread.";

/// Grace period for the agents of the session after the client disconnects. Afterwards they are closed by force.
const CLOSE_DEADLINE: Duration = Duration::from_secs(10);

/// The arguments of `mcp`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Token of the thread whose tools are served
    #[arg(long, env = "TROUPE_THREAD_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    thread_token: Option<GivenToken>,
    /// Thread whose tools are served, with your own token
    #[arg(long, value_name = "ID", conflicts_with_all = ["cwd", "no_cwd"])]
    thread: Option<String>,
    /// Session to join as its root, instead of a new one; it stays open at the end
    #[arg(long, value_name = "ID", conflicts_with_all = ["cwd", "no_cwd"])]
    session: Option<String>,
    /// The project of a new session.
    #[command(flatten)]
    project: ProjectArgs,
    /// Keep the new session open when the client disconnects
    #[arg(long, conflicts_with_all = ["session", "thread"])]
    keep: bool,
}

/// Serves until the client closes the input, or until SIGINT or SIGTERM. Both signals have the same effect as the end
/// of the input.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    // Clients display standard error, so only warnings are logged.
    pair::init_logging("warn")?;
    let stop = CancellationToken::new();
    let to_stop = stop.clone();
    // If no handler can be installed, signals terminate the process by default.
    let signals = Signals::listen();
    let signalled = tokio::spawn(async move {
        if let Ok(mut signals) = signals {
            signals.next().await;
            to_stop.cancel();
        }
    });
    let served = Box::pin(serve_arguments(&args, context, stop)).await;
    signalled.abort();
    served
}

async fn serve_arguments(args: &Args, context: &Context, stop: CancellationToken) -> Result<()> {
    let address = context.global.settings().address(Service::Supervisor)?;
    if let Some(token) = args.thread_token.as_ref().and_then(GivenToken::expose) {
        return serve_thread(&address, token.to_owned(), args, stop).await;
    }
    let token = context.global.settings().token(address.host())?;
    let mut supervisor = address.channel(&token).await?.supervisor();
    if args.session.is_some() || args.thread.is_some() {
        let caller = caller_of(&mut supervisor, &address, &token, args).await?;
        return serve(&address, caller, stop).await;
    }
    let request = CreateSessionRequest {
        cwd: args.project.cwd()?,
        ..CreateSessionRequest::default()
    };
    let opened = create_session(&mut supervisor, request, context).await?;
    let session_id = opened.session.ok_or_else(no_session)?.session_id;
    let session = style::paint(style::NAME, &session_id);
    context.ui.note(format!("session {session}"));
    let caller = Caller::Thread {
        token: opened.thread_token,
    };
    let served = serve(&address, caller, stop).await;
    if args.keep {
        context.ui.note(format!("session {session} stays open"));
        return served;
    }
    let closed = close_session(&mut supervisor, session_id).await;
    served.and(closed)
}

async fn serve_thread(address: &Address, token: String, args: &Args, stop: CancellationToken) -> Result<()> {
    if args.session.is_some() || args.keep || args.project.is_given() {
        return Err(
            Error::usage("a thread's token already determines the thread and the session")
                .hint("omit --session, --cwd, --no-cwd and --keep, or unset TROUPE_THREAD_TOKEN"),
        );
    }
    let server = connect(address, Caller::Thread { token }).await?;
    if let Some(thread) = args.thread.as_deref().filter(|thread| *thread != server.thread_id()) {
        return Err(Error::usage(format!(
            "the token belongs to thread {}, not to {thread}",
            server.thread_id()
        )));
    }
    server.serve(io::stdin(), io::stdout(), stop).await.map_err(Error::of)
}

async fn connect(address: &Address, caller: Caller) -> Result<ToolServer> {
    let connected = ToolServer::connect(address.connect().await?, caller).await;
    connected.map_err(Error::of)
}

async fn serve(address: &Address, caller: Caller, stop: CancellationToken) -> Result<()> {
    let server = connect(address, caller).await?;
    server.serve(io::stdin(), io::stdout(), stop).await.map_err(Error::of)
}

fn no_session() -> Error {
    Error::failure("the supervisor returned no session")
}

/// Returns a caller for the thread in the arguments, or for the root of the session in the arguments. The thread's
/// own token is no longer available, so the calls use the operator's token `token` on behalf of the thread.
async fn caller_of(supervisor: &mut Supervisor, address: &Address, token: &Token, args: &Args) -> Result<Caller> {
    let session = match &args.session {
        Some(text) => Some(ids::session(supervisor, text).await?),
        None => None,
    };
    let (session_id, thread_id) = match (&args.thread, session) {
        (Some(text), session) => {
            let request = GetThreadRequest {
                thread_id: ids::thread(supervisor, text, session.as_deref()).await?,
                session_id: session.unwrap_or_default(),
            };
            let answer = supervisor.get_thread(Request::new(request)).await?.into_inner();
            let thread = answer
                .thread
                .ok_or_else(|| Error::failure("the supervisor returned no thread"))?;
            (thread.session_id, thread.thread_id)
        }
        (None, session) => {
            let request = GetSessionRequest {
                session_id: session.unwrap_or_default(),
            };
            let answer = supervisor.get_session(Request::new(request)).await?.into_inner();
            let session = answer.session.ok_or_else(no_session)?;
            (session.session_id, session.root_thread_id)
        }
    };
    Ok(Caller::Operator {
        token: accepted_token(address, token, &session_id).await?,
        session_id,
        thread_id,
    })
}

/// Returns the token for the calls of the tools. A token from the data directory may belong to another service. If the
/// supervisor rejects such a token, returns `None`.
async fn accepted_token(address: &Address, token: &Token, session_id: &str) -> Result<Option<String>> {
    let text = token.expose().map(str::to_owned);
    let Some(found) = text.as_ref().filter(|_| token.is_found()) else {
        return Ok(text);
    };
    // The probe sends the token like a token from the command line, because the client may leave out a token that it
    // found in the data directory.
    let mut supervisor = address.channel(&Token::given(found)).await?.supervisor();
    let request = GetSessionRequest {
        session_id: session_id.to_owned(),
    };
    let probe = supervisor.get_session(Request::new(request)).await;
    let is_rejected = probe.is_err_and(|status| status.code() == Code::Unauthenticated);
    Ok(text.filter(|_| !is_rejected))
}

/// Closes the session that was opened for the client. A client that does not want to wait may kill this process once
/// the supervisor has the request; the session is closed anyway.
async fn close_session(supervisor: &mut Supervisor, session_id: String) -> Result<()> {
    let request = CloseSessionRequest {
        request_id: troupe_client::request_id(),
        session_id: session_id.clone(),
        wait: true,
        deadline: Some(time::to_proto(CLOSE_DEADLINE)),
        ..CloseSessionRequest::default()
    };
    match supervisor.close_session(Request::new(request)).await {
        Ok(_) => Ok(()),
        Err(status) => Err(Error::from(status)
            .context("the session stays open")
            .hint(format!("`troupe close --session {session_id}` closes it"))),
    }
}
