//! A program's hook: the command that a program runs before each tool call, and the runner's end of the command's
//! connection. The command sends its input to a socket and prints the answer. Programs run a tool if its hook fails, so
//! every failure here results in a denial.

use std::{
    ffi::OsString,
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream as BlockingStream,
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixListener, UnixStream},
    sync::{Semaphore, mpsc, oneshot},
    time::{sleep, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::debug;

use crate::tools::DECISION_LIMIT;

/// Maximum size of a request, in bytes.
const MAX_QUESTION_BYTES: u64 = 1024 * 1024;
/// Maximum number of waiting requests per program.
const WAITING: usize = 32;
/// Maximum number of concurrent connections.
const CONNECTIONS: usize = 64;
/// Time limit for transferring a request, and for sending the answer. It does not include the wait for the decision.
const IO_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay after a failed accept: the process may have no free descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Time limit that a program gives its hook. After this time the program runs the tool, so the hook's command must end
/// earlier. The command waits at most [`ANSWER_TIMEOUT`] for the answer; the other 30 seconds are for sending the
/// request.
pub(crate) const LIMIT: Duration = Duration::from_secs(ANSWER_TIMEOUT.as_secs() + 30);
/// Time limit for the runner's answer to a hook command.
const ANSWER_TIMEOUT: Duration = DECISION_LIMIT;
/// The exit status with which a hook refuses a call.
const REFUSED: u8 = 2;

/// Asks the runner about the tool call on standard input, and prints the decision to standard output. Implements
/// `troupe hook SOCKET`.
#[must_use]
pub fn ask(socket: &Path) -> ExitCode {
    match ask_at(socket) {
        Ok(answer) => {
            if io::stdout().write_all(answer.as_bytes()).is_ok() {
                return ExitCode::SUCCESS;
            }
            ExitCode::from(REFUSED)
        }
        Err(error) => {
            // Codex treats the call as refused only if a reason is given.
            let _ = writeln!(io::stderr(), "refused: no decision from the runner: {error}");
            ExitCode::from(REFUSED)
        }
    }
}

fn ask_at(socket: &Path) -> io::Result<String> {
    let mut question = String::new();
    io::stdin().take(MAX_QUESTION_BYTES + 1).read_to_string(&mut question)?;
    if question.len() as u64 > MAX_QUESTION_BYTES {
        return Err(io::Error::other("the call is too large for a decision"));
    }
    // Makes the question one line, whatever white space is between its fields.
    let question: Value = serde_json::from_str(&question)?;
    send_request(socket, &format!("{question}\n"), IO_TIMEOUT)
}

/// Sends a request to the runner and waits for the answer.
fn send_request(socket: &Path, question: &str, io_timeout: Duration) -> io::Result<String> {
    let mut stream = BlockingStream::connect(socket)?;
    stream.set_write_timeout(Some(io_timeout))?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.write_all(question.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.ends_with('\n') {
        Ok(answer)
    } else {
        Err(io::Error::other("the runner closed the connection without an answer"))
    }
}

/// Returns the answer that refuses a call, in the programs' format.
pub(crate) fn denial(why: &str) -> Value {
    json!({"hookSpecificOutput": {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": why,
    }})
}

/// A request of a hook.
#[derive(Debug)]
pub(crate) struct HookCall {
    /// The program's input to its hook.
    pub(crate) input: Value,
    /// Receives the answer. `None`: the tool may run. Dropping the sender denies the call.
    pub(crate) answer: oneshot::Sender<Option<Value>>,
}

/// The runner's end of the hook: a Unix socket. Its directory and the umask restrict access.
#[derive(Debug)]
pub(crate) struct HookServer {
    calls: mpsc::Receiver<HookCall>,
    _serving: DropGuard,
}

impl HookServer {
    /// Listens at that path. No file may exist there.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        Self::bind_with(path, CONNECTIONS, IO_TIMEOUT)
    }

    fn bind_with(path: &Path, connections: usize, io_timeout: Duration) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        let (ask, calls) = mpsc::channel(WAITING);
        let serving = CancellationToken::new();
        let serve = serve(listener, ask, connections, io_timeout);
        tokio::spawn(serving.clone().run_until_cancelled_owned(serve));
        Ok(Self {
            calls,
            _serving: serving.drop_guard(),
        })
    }

    /// Returns a server that receives requests without a socket.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn over(calls: mpsc::Receiver<HookCall>) -> Self {
        Self {
            calls,
            _serving: CancellationToken::new().drop_guard(),
        }
    }

    /// Returns the next request. Cancel safe.
    pub(crate) async fn next(&mut self) -> HookCall {
        match self.calls.recv().await {
            Some(call) => call,
            None => std::future::pending().await,
        }
    }
}

/// Serves at most `connections` connections at once. Other connections wait. Every connection has a time limit, so an
/// idle one cannot keep its slot.
async fn serve(listener: UnixListener, ask: mpsc::Sender<HookCall>, connections: usize, io_timeout: Duration) {
    let places = Arc::new(Semaphore::new(connections));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let answered = answer(stream, ask.clone(), io_timeout);
                tokio::spawn(async move {
                    let _place = place;
                    answered.await
                });
            }
            // A connection failed, so its call is denied, or the process has no free file descriptors.
            Err(error) => {
                debug!(%error, "a hook connection was not accepted");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Answers one connection. A connection that closes without an answer denies its call.
async fn answer(mut stream: UnixStream, ask: mpsc::Sender<HookCall>, io_timeout: Duration) -> Option<()> {
    let (reader, mut writer) = stream.split();
    let mut line = String::new();
    let mut reader = BufReader::new(reader.take(MAX_QUESTION_BYTES + 2));
    timeout(io_timeout, reader.read_line(&mut line)).await.ok()?.ok()?;
    let input = serde_json::from_str(&line).ok()?;
    let (answer, decided) = oneshot::channel();
    ask.send(HookCall { input, answer }).await.ok()?;
    let reply = match decided.await.ok()? {
        Some(answer) => format!("{answer}\n"),
        // Programs treat an empty answer as permission.
        None => "\n".to_owned(),
    };
    timeout(io_timeout, writer.write_all(reply.as_bytes())).await.ok()?.ok()
}

/// Returns the shell command of a program's hook. The command denies the call if the runner does not answer. It
/// contains everything that it runs, so a program that trusts the hash of the command trusts all of it. `None`: a path
/// cannot be quoted for a shell.
pub(crate) fn command(words: &[OsString], socket: &Path) -> Option<String> {
    let quoted = words.iter().map(|word| word.to_str()).chain([socket.to_str()]);
    let quoted: Option<Vec<String>> = quoted.map(|word| Some(quote(word?))).collect();
    let script = format!(
        "{} || {{ echo \"refused: the hook failed\" >&2; exit {REFUSED}; }}",
        quoted?.join(" ")
    );
    Some(format!("sh -c {}", quote(&script)))
}

fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    async fn ask_hook(path: PathBuf, question: &'static str) -> String {
        let mut stream = UnixStream::connect(path).await.unwrap();
        stream.write_all(question.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn unanswered_hook_request_is_denied() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let mut server = HookServer::bind(&path).unwrap();
        let question = tokio::spawn(ask_hook(path.clone(), "{\"tool_name\":\"Bash\"}\n"));
        let call = server.next().await;
        assert_eq!(call.input["tool_name"], "Bash");
        call.answer.send(None).unwrap();
        assert_eq!(question.await.unwrap(), "\n");

        let question = tokio::spawn(ask_hook(path.clone(), "{}\n"));
        let call = server.next().await;
        call.answer.send(Some(denial("no"))).unwrap();
        assert!(question.await.unwrap().contains("\"permissionDecision\":\"deny\""));

        let question = tokio::spawn(ask_hook(path.clone(), "{}\n"));
        drop(server.next().await);
        assert_eq!(
            question.await.unwrap(),
            "",
            "the hook command denies a call without an answer"
        );
        assert_eq!(ask_hook(path, "not json\n").await, "");
    }

    #[tokio::test]
    async fn idle_hook_connection_is_closed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let _server = HookServer::bind_with(&path, 1, Duration::from_millis(50)).unwrap();
        for begun in ["", "{\"tool_name\":"] {
            assert_eq!(ask_hook(path.clone(), begun).await, "");
        }
    }

    #[tokio::test]
    async fn concurrent_hook_connections_are_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let mut server = HookServer::bind_with(&path, 1, IO_TIMEOUT).unwrap();
        let first = tokio::spawn(ask_hook(path.clone(), "{\"n\":1}\n"));
        let call = server.next().await;
        let second = tokio::spawn(ask_hook(path.clone(), "{\"n\":2}\n"));
        // Gives a second request time to arrive.
        for _ in 0..10_000 {
            tokio::task::yield_now().await;
        }
        assert!(server.calls.try_recv().is_err());
        assert_eq!(call.input["n"], 1);
        call.answer.send(None).unwrap();
        assert_eq!(first.await.unwrap(), "\n");
        let call = server.next().await;
        assert_eq!(call.input["n"], 2);
        call.answer.send(None).unwrap();
        assert_eq!(second.await.unwrap(), "\n");
    }

    #[test]
    fn hook_request_without_reader_times_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let longer_than_any_buffer = "x".repeat(16 * 1024 * 1024);
        assert!(send_request(&path, &longer_than_any_buffer, Duration::from_millis(50)).is_err());
    }

    #[test]
    fn failed_hook_denies_call() {
        let words = ["/nowhere/tr'oupe".into(), "hook".into()];
        let command = command(&words, Path::new("/a b/s")).unwrap();
        let output = std::process::Command::new("sh")
            .args(["-c", &command])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(i32::from(REFUSED)));
        let words = [OsString::from("printf"), "%s|".into(), "it's".into()];
        let command = super::command(&words, Path::new("/a b/s")).unwrap();
        let output = std::process::Command::new("sh")
            .args(["-c", &command])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "it's|/a b/s|");
    }
}
