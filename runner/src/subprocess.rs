//! Runs subprocesses to their end: in their own process group, without input, with limits for their time and for the
//! stored output. When a subprocess ends, or when the caller stops waiting for it, the whole group of the subprocess is
//! killed.

use std::{
    io,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::process::Signal;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::Child,
    task::JoinSet,
    time::timeout,
};

use crate::{
    group::{Group, describe},
    process_spec::{self, ProcessSpec},
    text::keep_end,
};

/// Time for a program to end after a signal, and for its output to close after its end.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum length of a failed program's output in an error text, in bytes.
const MAX_ERROR_BYTES: usize = 4 * 1024;

/// Limits of a program: its time, and the stored bytes of standard output and of standard error, separately.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) time: Duration,
    pub(crate) output: usize,
}

/// The result of a program.
#[derive(Debug)]
pub(crate) struct SubprocessOutput {
    pub(crate) ending: SubprocessExit,
    pub(crate) stdout: OutputTail,
    pub(crate) stderr: OutputTail,
}

/// How a program ended.
#[derive(Debug)]
pub(crate) enum SubprocessExit {
    Exited(io::Result<ExitStatus>),
    TimedOut,
}

/// The stored end of a pipe's output, and the number of dropped bytes before it.
#[derive(Clone, Debug)]
pub(crate) struct OutputTail {
    max: usize,
    bytes: Vec<u8>,
    dropped: usize,
}

/// Runs a program.
///
/// # Errors
///
/// The program cannot be started.
pub(crate) async fn run(process: ProcessSpec, limits: Limits) -> io::Result<SubprocessOutput> {
    let mut running = Running::start(process, limits.output)?;
    let ending = running.end(limits.time).await;
    let [stdout, stderr] = running.output().await;
    Ok(SubprocessOutput { ending, stdout, stderr })
}

/// Runs a program whose output is useful only if it is complete.
///
/// # Errors
///
/// The program failed. The text is the program's error output, or else a text that begins with `name`.
pub(crate) async fn output_of(name: &str, process: ProcessSpec, limits: Limits) -> Result<Vec<u8>, String> {
    let finished = run(process, limits).await;
    let SubprocessOutput { ending, stdout, stderr } =
        finished.map_err(|error| format!("{name} cannot be run: {error}"))?;
    match ending {
        SubprocessExit::TimedOut => Err(format!("{name} took over {:?}", limits.time)),
        SubprocessExit::Exited(Ok(status)) if status.success() => match stdout.dropped {
            0 => Ok(stdout.bytes),
            _ => Err(format!("{name} wrote over {} bytes", limits.output)),
        },
        SubprocessExit::Exited(status) => {
            let mut text = stderr.text().trim().to_owned();
            keep_end(&mut text, MAX_ERROR_BYTES);
            if text.is_empty() {
                text = format!("{name} ended ({})", describe(&status));
            }
            Err(text)
        }
    }
}

/// A running program. Dropping it kills its group.
struct Running {
    child: Child,
    group: Group,
    stdout: Arc<Mutex<OutputTail>>,
    stderr: Arc<Mutex<OutputTail>>,
    readers: JoinSet<()>,
}

impl Running {
    fn start(process: ProcessSpec, kept: usize) -> io::Result<Self> {
        let mut child = process_spec::start(process, Stdio::null())?;
        let (Some(group), Some(stdout), Some(stderr)) = (Group::of(&child), child.stdout.take(), child.stderr.take())
        else {
            return Err(io::Error::other("the process has no id or no pipes"));
        };
        let tail = || Arc::new(Mutex::new(OutputTail::of(kept)));
        let mut running = Self {
            child,
            group,
            stdout: tail(),
            stderr: tail(),
            readers: JoinSet::new(),
        };
        running.readers.spawn(keep_tail(stdout, Arc::clone(&running.stdout)));
        running.readers.spawn(keep_tail(stderr, Arc::clone(&running.stderr)));
        Ok(running)
    }

    /// Waits for the end, and kills the program at the limit.
    async fn end(&mut self, limit: Duration) -> SubprocessExit {
        let ending = match timeout(limit, self.child.wait()).await {
            Ok(status) => SubprocessExit::Exited(status),
            Err(_) => {
                self.group.signal(Signal::TERM);
                if timeout(EXIT_TIMEOUT, self.child.wait()).await.is_err() {
                    self.group.signal(Signal::KILL);
                    // Reaps the program. No process of its group survives.
                    let _ = self.child.wait().await;
                }
                SubprocessExit::TimedOut
            }
        };
        self.group.leader_reaped();
        ending
    }

    /// Returns the output. The pipes close when the group has ended, unless a process left the group and holds them.
    async fn output(mut self) -> [OutputTail; 2] {
        let drained = async { while self.readers.join_next().await.is_some() {} };
        let _ = timeout(EXIT_TIMEOUT, drained).await;
        [&self.stdout, &self.stderr].map(|tail| {
            let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
            tail.finish()
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.group.signal(Signal::KILL);
    }
}

impl OutputTail {
    const fn of(max: usize) -> Self {
        Self {
            max,
            bytes: Vec::new(),
            dropped: 0,
        }
    }

    fn push(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
        // Not done for every piece: moving the stored bytes each time would cost more than the extra memory.
        if self.bytes.len() > 2 * self.max {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let surplus = self.bytes.len().saturating_sub(self.max);
        self.bytes.drain(..surplus);
        self.dropped += surplus;
    }

    /// Returns the output so far, cut to its limit.
    fn finish(&mut self) -> Self {
        self.cut();
        std::mem::replace(self, Self::of(self.max))
    }

    /// Returns the text, with a note about omitted output.
    pub(crate) fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        match self.dropped {
            0 => text.into_owned(),
            dropped => format!("[{dropped} bytes were dropped]\n{text}"),
        }
    }
}

async fn keep_tail(mut pipe: impl AsyncRead + Unpin, tail: Arc<Mutex<OutputTail>>) {
    let mut buffer = vec![0; 8 * 1024];
    while let Ok(length @ 1..) = pipe.read(&mut buffer).await {
        tail.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(&buffer[..length]);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{fs, path::Path};

    use tokio::task::yield_now;

    use super::*;

    const LIMITS: Limits = Limits {
        time: Duration::from_secs(3600),
        output: 100,
    };

    #[tokio::test]
    async fn incomplete_subprocess_output_is_an_error() {
        let short = Limits {
            time: Duration::from_millis(100),
            ..LIMITS
        };
        for (script, limits, expected) in [
            ("echo said; echo aside >&2", LIMITS, Ok("said\n")),
            ("echo said; echo why >&2; exit 3", LIMITS, Err("why")),
            ("echo said; exit 3", LIMITS, Err("it ended (exit status 3)")),
            ("head -c 1000000 /dev/zero", LIMITS, Err("it wrote over 100 bytes")),
            ("sleep 1000", short, Err("it took over 100ms")),
        ] {
            let output = output_of("it", ProcessSpec::shell(script), limits).await;
            let output = output.map(|bytes| String::from_utf8(bytes).unwrap());
            assert_eq!(output.as_deref().map_err(String::as_str), expected, "{script}");
        }
        let nowhere = ProcessSpec::new("/nowhere/it", [""; 0], "/", Default::default());
        let why = output_of("it", nowhere, LIMITS).await.unwrap_err();
        assert!(why.starts_with("it cannot be run: "), "{why}");
    }

    #[tokio::test]
    async fn abandoned_subprocess_group_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("child");
        let script = format!(
            "sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000' & wait",
            file.display()
        );
        let running = tokio::spawn(run(ProcessSpec::shell(&script), LIMITS));
        let within = Duration::from_secs(20);
        let begun = async {
            while !file.exists() {
                yield_now().await;
            }
        };
        timeout(within, begun).await.unwrap();
        let child = fs::read_to_string(&file).unwrap();
        running.abort();
        assert!(running.await.is_err());
        let gone = async {
            // A killed process may be a zombie until its parent reaps it.
            let stat = Path::new("/proc").join(child.trim()).join("stat");
            while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
                yield_now().await;
            }
        };
        timeout(within, gone).await.unwrap();
    }
}
