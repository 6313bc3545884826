//! Runs the real agent programs (Codex, Claude Code, OpenCode and Gemini CLI) as agents of a `troupe` process, with a
//! scripted stand-in for their model providers. `tests/agents/README.md` describes the scripts.
//!
//! The programs are not installed everywhere, so these tests run only with `TROUPE_AGENTS=1`. A missing program is then
//! a failure. Without the variable, each test prints that it did not run.

use std::{
    env,
    fs::{self, File},
    io::{self, Write as _},
    net::SocketAddr,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{PermissionsExt as _, chown},
    },
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time::sleep,
};
use troupe_proto::supervisor::v1::{CreateSessionRequest, Thread, WaitAgentsRequest};

use crate::{
    client,
    process::{signal, troupe},
    tree::Tree,
    within,
};

/// Name of the program and of a role that uses it.
pub const CODEX: &str = "codex";
/// As [`CODEX`].
pub const CLAUDE: &str = "claude";
/// As [`CODEX`].
pub const OPENCODE: &str = "opencode";
/// As [`CODEX`].
pub const GEMINI: &str = "gemini";
/// User id of a launcher and its programs. The tests themselves run as root.
pub const LAUNCHER_USER: u32 = 65_532;
/// API key of the programs. Only the stand-in may receive it.
pub const KEY: &str = "sk-of-the-stand-in";

/// Interval of checks for changes without a notification, such as a new file or the end of a process.
pub const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A script that starts a launcher in namespaces of its own, like a container. Its arguments are the launcher's user
/// and socket, and the visible directories. The second visible directory contains `troupe`. A parent directory that the
/// user may not enter is covered by an empty directory.
const CONTAINER: &str = r#"
user=$1 socket=$2
shift 2
as_user() { setpriv --reuid "$user" --regid 0 --clear-groups --no-new-privs --bounding-set -all "$@"; }
mount -t proc proc /proc
aside=$(mktemp -d /run/container.XXXXXX)
mount -t tmpfs tmpfs "$aside"
number=0
for path in "$@"; do
  number=$((number + 1))
  mkdir "$aside/$number"
  mount --rbind "$path" "$aside/$number"
done
number=0
for path in "$@"; do
  number=$((number + 1))
  if as_user test -x "$path"; then continue; fi
  closed= at=$path
  while [ "$at" != / ]; do
    if [ -e "$at" ] && ! as_user test -x "$at"; then closed=$at; fi
    at=$(dirname "$at")
  done
  if [ -n "$closed" ]; then mount -t tmpfs -o mode=755 tmpfs "$closed"; fi
  mkdir -p "$path"
  mount --rbind "$aside/$number" "$path"
done
# The kernel clears a process's parent-death signal when its user changes, so this shell stays the first process.
as_user "$2/troupe" launcher "$socket" &
wait
"#;

/// Returns whether the tests with real programs run. If not, prints that `test` did not run.
#[must_use]
pub fn are_wanted(test: &str) -> bool {
    if env::var_os("TROUPE_AGENTS").is_some_and(|value| value == "1") {
        return true;
    }
    // Without `eprintln!`: the test harness hides the output of macros if the test passes.
    let _ = writeln!(
        io::stderr(),
        "NOT RUN: {test} needs the real programs; `tests/agents/install`, then TROUPE_AGENTS=1"
    );
    false
}

/// Returns the path of a program.
///
/// # Panics
///
/// If the program is not installed. Running these tests requires its installation.
fn program(name: &str) -> PathBuf {
    let tools = env::var_os("TROUPE_TOOLS").map_or_else(
        || {
            let cache = env::var_os("XDG_CACHE_HOME").map_or_else(
                || PathBuf::from(env::var_os("HOME").expect("HOME is set")).join(".cache"),
                PathBuf::from,
            );
            cache.join("troupe-tools")
        },
        PathBuf::from,
    );
    let path = tools.join("agents/bin").join(name);
    assert!(
        path.is_file(),
        "{} is missing: run `tests/agents/install {name}`",
        path.display()
    );
    path
}

/// Returns the steps as a script for the stand-in, to be included in a prompt.
#[must_use]
pub fn script(steps: &Value) -> String {
    format!("@@{steps}@@")
}

/// Waits until `look` returns a value.
///
/// # Panics
///
/// If `look` returns no value in time; `what` names the expected value.
pub async fn until<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    within(what, async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            sleep(LOOK_EVERY).await;
        }
    })
    .await
}

// === the stand-in ===

/// The stand-in for the providers.
#[derive(Debug)]
pub struct StandIn {
    /// Its base URL.
    pub url: String,
    log: PathBuf,
    _process: Child,
}

/// A request that a program made.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The program, derived from the protocol of the request.
    pub program: &'static str,
    /// The names of all tools that the model was offered.
    pub tools: Vec<String>,
    /// The results of the tool calls of the conversation so far.
    pub results: Vec<String>,
    /// Number of messages in the conversation.
    pub messages: u64,
    /// The stand-in's answer.
    pub played: String,
    /// The reasoning effort.
    pub effort: String,
    /// The last part of the user messages, shortened.
    pub users: String,
}

impl StandIn {
    async fn start(directory: &Path) -> Self {
        let (ready, log) = (directory.join("provider.url"), directory.join("provider.log"));
        let process = Command::new("python3")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("agents/provider"))
            .args(["--port", "0", "--ready-file"])
            .arg(&ready)
            .arg("--log")
            .arg(&log)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("python3 is installed");
        let url = until("the stand-in's address", async || {
            let text = fs::read_to_string(&ready).ok()?;
            (!text.is_empty()).then(|| text.trim().to_owned())
        })
        .await;
        Self {
            url,
            log,
            _process: process,
        }
    }

    /// Returns the requests so far, in order.
    #[must_use]
    pub fn log(&self) -> Vec<Asked> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        // A partially written line is not valid JSON.
        let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        lines.filter_map(|line: Value| Asked::read(&line)).collect()
    }

    /// Returns the requests of a program so far.
    #[must_use]
    pub fn asked_by(&self, program: &str) -> Vec<Asked> {
        self.log()
            .into_iter()
            .filter(|asked| asked.program == program)
            .collect()
    }
}

impl Asked {
    fn read(line: &Value) -> Option<Self> {
        let program = match line["protocol"].as_str()? {
            "responses" => CODEX,
            "messages" => CLAUDE,
            "chat" => OPENCODE,
            "gemini" => GEMINI,
            _ => return None,
        };
        let texts = |key: &str| {
            let list = line[key].as_array().into_iter().flatten();
            list.filter_map(|text| text.as_str().map(str::to_owned)).collect()
        };
        Some(Self {
            program,
            tools: texts("tools"),
            results: texts("results"),
            messages: line["messages"].as_u64().unwrap_or_default(),
            played: line["played"].as_str().unwrap_or_default().to_owned(),
            effort: line["effort"].as_str().unwrap_or_default().to_owned(),
            users: line["users"].as_str().unwrap_or_default().to_owned(),
        })
    }

    /// Returns whether the model was offered a tool of this name, by Troupe or by the program.
    #[must_use]
    pub fn offers(&self, tool: &str) -> bool {
        let own = |name: &str| {
            let prefixes = ["troupe/", "mcp__troupe__", "troupe_", "mcp_troupe_"];
            prefixes.iter().any(|prefix| name.strip_prefix(prefix) == Some(tool))
        };
        self.tools.iter().any(|name| name == tool || own(name))
    }
}

// === the pair and its runner ===

/// A pair as a process, with its own directories and the stand-in.
#[derive(Debug)]
pub struct Lab {
    /// The stand-in.
    pub stand_in: StandIn,
    directory: PathBuf,
    supervisor: SocketAddr,
    token: Option<String>,
    has_runner: bool,
    up: Child,
    _files: TempDir,
}

impl Lab {
    /// Starts `troupe up` with its own runner and creates the files below a directory. The directory must not be one
    /// for temporary files, because Codex stores nothing in such a directory.
    pub async fn with_runner(under: &Path) -> Self {
        Self::start(under, true).await
    }

    /// Starts `troupe up` without a runner; see [`Lab::runner`].
    pub async fn without_runner(under: &Path) -> Self {
        Self::start(under, false).await
    }

    async fn start(under: &Path, has_runner: bool) -> Self {
        // A short name, because the paths of sockets have a maximum length.
        let files = tempfile::Builder::new().prefix("a").tempdir_in(under).unwrap();
        let directory = fs::canonicalize(files.path()).unwrap();
        for name in ["home", "w/.git", "w/.codex/.agents", "d"] {
            fs::create_dir_all(directory.join(name)).unwrap();
        }
        let stand_in = StandIn::start(&directory).await;
        let programs = runner_yaml(&stand_in.url);
        fs::write(directory.join("runner.yaml"), programs.to_string()).unwrap();
        let prices = "currency: USD\nmodels: [{model: '**', input: 1, output: 1}]\n";
        fs::write(directory.join("prices.yaml"), prices).unwrap();
        let (up, supervisor) = Self::up(&directory, has_runner).await;
        let lab = Self {
            stand_in,
            supervisor,
            token: fs::read_to_string(directory.join("d/operator.token"))
                .ok()
                .map(|token| token.trim().to_owned()),
            directory,
            has_runner,
            up,
            _files: files,
        };
        // The role's model selects the program.
        lab.role(CODEX, CODEX, "");
        lab.role(CLAUDE, CLAUDE, "");
        lab
    }

    /// Stops `up` with SIGINT, like Ctrl-C, and starts it again with the same data.
    ///
    /// # Panics
    ///
    /// If `up` does not exit with status 0.
    pub async fn restart(&mut self) {
        signal(&self.up, Signal::INT);
        let ended = within("the end of `up`", self.up.wait()).await.unwrap();
        assert!(ended.success(), "{ended}");
        fs::remove_file(self.directory.join("ready.json")).unwrap();
        (self.up, self.supervisor) = Self::up(&self.directory, self.has_runner).await;
    }

    /// Starts `troupe up`, waits until it serves, and returns its process and the supervisor's address.
    async fn up(directory: &Path, has_runner: bool) -> (Child, SocketAddr) {
        let ready = directory.join("ready.json");
        let mut up = command(directory);
        up.args([
            "up",
            "--registry-listen",
            "127.0.0.1:0",
            "--supervisor-listen",
            "127.0.0.1:0",
        ])
        .arg("--workspace-root")
        .arg(directory)
        .arg("--data-dir")
        .arg(directory.join("d"))
        .arg("--prices")
        .arg(directory.join("prices.yaml"))
        .arg("--ready-file")
        .arg(&ready)
        .stdout(Stdio::null())
        .stderr(File::create(directory.join("up.log")).unwrap());
        if has_runner {
            up.arg("--programs").arg(directory.join("runner.yaml"));
        } else {
            up.arg("--no-runner");
        }
        let up = up.spawn().unwrap();
        let said: Value = until("the ready file of `up`", async || {
            serde_json::from_str(&fs::read_to_string(&ready).ok()?).ok()
        })
        .await;
        (up, said["supervisor"].as_str().unwrap().parse().unwrap())
    }

    /// Starts a separate runner process with this id.
    pub fn runner(&self, id: &str) -> Child {
        self.runner_command(id).spawn().unwrap()
    }

    /// Returns the command of a runner with this id.
    #[must_use]
    pub fn runner_command(&self, id: &str) -> Command {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.directory.join("run.log"))
            .unwrap();
        let mut command = command(&self.directory);
        command
            .args(["run", "--runner-id", id, "--programs", "runner.yaml", "--supervisor"])
            .arg(format!("http://{}", self.supervisor))
            .arg("--state")
            .arg(self.directory.join("s"))
            .arg("--scratch")
            .arg(self.directory.join("t"))
            .stdout(Stdio::null())
            .stderr(log);
        command
    }

    /// Starts a launcher like in a container, with another user and a separate PID namespace, and returns its process
    /// and its socket. The launcher can access the programs, the workspace and the directories of threads, but not the
    /// home of this user.
    ///
    /// # Panics
    ///
    /// If the launcher does not start. Starting it requires root.
    pub async fn launcher(&self) -> (Child, PathBuf) {
        let socket = self.directory.join("launcher/socket");
        fs::create_dir(self.directory.join("launcher")).unwrap();
        for shared in ["launcher", "s", "t"] {
            let path = self.directory.join(shared);
            fs::create_dir_all(&path).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o2770)).unwrap();
        }
        // The group, which is root's, may enter the directory.
        fs::set_permissions(&self.directory, fs::Permissions::from_mode(0o750)).unwrap();
        // A launcher in a container has no access to the data directory.
        fs::set_permissions(self.directory.join("d"), fs::Permissions::from_mode(0o700)).unwrap();
        for owned in ["w", "w/.git"] {
            chown(self.directory.join(owned), Some(LAUNCHER_USER), None).unwrap();
        }
        let programs = program(CODEX).ancestors().nth(2).unwrap().to_owned();
        let troupe = troupe().parent().unwrap().to_owned();
        let mut command = Command::new("unshare");
        command
            .args([
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "--",
                "sh",
                "-euc",
                CONTAINER,
                "sh",
            ])
            .arg(LAUNCHER_USER.to_string())
            .arg(&socket)
            .args([programs, troupe, self.directory.clone()])
            .env_clear()
            .env("PATH", env::var_os("PATH").unwrap_or_default())
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(self.directory.join("launcher.log")).unwrap())
            .kill_on_drop(true);
        let launcher = command.spawn().unwrap();
        until("the launcher's socket", async || socket.exists().then_some(())).await;
        (launcher, socket)
    }

    /// Writes a role for a program, with additional lines of frontmatter.
    pub fn role(&self, name: &str, program: &str, more: &str) {
        let model = match program {
            CODEX => "gpt-5.5",
            OPENCODE => "standin/m1",
            GEMINI => "gemini-2.5-flash",
            _ => "claude-opus-5-5",
        };
        let text = format!("---\ndescription: for a test\nmodel: {model}\n{more}---\nDo as you are told.\n");
        let path = self.project().join(".codex/.agents").join(format!("{name}.md"));
        fs::write(path, text).unwrap();
    }

    /// Returns the command of an agent program that a user starts in the project with a prompt. Its only MCP server is
    /// `troupe mcp`.
    ///
    /// # Panics
    ///
    /// If these tests do not support the program.
    #[must_use]
    pub fn own_agent(&self, name: &str, prompt: &str) -> Command {
        let url = self.stand_in.url.trim_end_matches('/');
        let mut server = vec![
            "mcp".to_owned(),
            "--supervisor".to_owned(),
            format!("http://{}", self.supervisor),
        ];
        server.extend(
            self.token
                .iter()
                .flat_map(|token| ["--token".to_owned(), token.clone()]),
        );
        let mut line = Command::new(program(name));
        match name {
            CLAUDE => {
                let servers = json!({"mcpServers": {"troupe": {"command": troupe(), "args": server}}});
                line.args(["--print", prompt, "--allowedTools", "mcp__troupe"])
                    .args(["--mcp-config", &servers.to_string()])
                    .envs([("ANTHROPIC_BASE_URL", url), ("ANTHROPIC_API_KEY", KEY)])
                    // The stand-in does not support tool search, so the program must know all tools before its first
                    // request.
                    .envs([("ENABLE_TOOL_SEARCH", "false"), ("MCP_CONNECTION_NONBLOCKING", "false")]);
            }
            CODEX => {
                let settings = [
                    format!("mcp_servers.troupe.command={}", json!(troupe())),
                    format!("mcp_servers.troupe.args={}", json!(server)),
                    format!(
                        "model_providers.standin={{name='standin',base_url='{url}/v1',wire_api='responses',env_key='STANDIN_KEY'}}"
                    ),
                    "model_provider='standin'".to_owned(),
                    "features.multi_agent=false".to_owned(),
                ];
                line.args([
                    "exec",
                    "--skip-git-repo-check",
                    "--dangerously-bypass-approvals-and-sandbox",
                ])
                // For a model that Codex knows, it would use tool search, which the stand-in does not support.
                .args(["--model", "standin"])
                .args(settings.iter().flat_map(|setting| ["-c", setting]))
                .arg(prompt)
                .env("STANDIN_KEY", KEY);
            }
            other => panic!("{other} is not supported as a user's own agent"),
        }
        line.env("HOME", self.directory.join("home"))
            .current_dir(self.project())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        line
    }

    /// Returns a command that runs a line in a user's shell in the project. The shell finds the programs and a `troupe`
    /// for this pair, and the programs use the stand-in as their provider.
    ///
    /// # Panics
    ///
    /// If the files for the shell cannot be written.
    #[must_use]
    pub fn person(&self, line: &str) -> Command {
        let bin = self.directory.join("bin");
        fs::create_dir_all(&bin).unwrap();
        let wrapper = format!(
            "#!/bin/sh\nexec '{}' --supervisor 'http://{}' --data-dir '{}' \"$@\"\n",
            troupe().display(),
            self.supervisor,
            self.directory.join("d").display()
        );
        fs::write(bin.join("troupe"), wrapper).unwrap();
        fs::set_permissions(bin.join("troupe"), fs::Permissions::from_mode(0o755)).unwrap();
        let programs = program(CLAUDE).parent().unwrap().to_owned();
        let system = env::var_os("PATH").unwrap_or_default();
        let path = [bin, programs].into_iter().chain(env::split_paths(&system));
        let url = self.stand_in.url.trim_end_matches('/');
        let mut command = Command::new("sh");
        command
            .args(["-c", line])
            .env_clear()
            .env("HOME", self.home())
            .env("PATH", env::join_paths(path).unwrap())
            .envs([("ANTHROPIC_BASE_URL", url), ("GOOGLE_GEMINI_BASE_URL", url)])
            .envs(["ANTHROPIC_API_KEY", "GEMINI_API_KEY", "STANDIN_KEY"].map(|name| (name, KEY)))
            // The stand-in does not support tool search, so the program must know all tools before its first request.
            .envs([("ENABLE_TOOL_SEARCH", "false"), ("MCP_CONNECTION_NONBLOCKING", "false")])
            .env("GEMINI_MODEL", "gemini-2.5-flash")
            .current_dir(self.project())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Returns the home directory of the user's programs.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.directory.join("home")
    }

    /// Returns an operator's client of the pair's supervisor.
    #[must_use]
    pub fn client(&self) -> client::Supervisor {
        client::supervisor(self.supervisor, self.token.as_deref())
    }

    /// Returns the project's directory, where agents work.
    #[must_use]
    pub fn project(&self) -> PathBuf {
        self.directory.join("w")
    }

    /// Creates a session over the project.
    pub async fn tree(&self, request: CreateSessionRequest) -> Tree {
        let request = CreateSessionRequest {
            cwd: self.project().display().to_string(),
            ..request
        };
        Tree::open(self.client(), request).await
    }
}

/// Returns a `troupe` command whose environment is empty except for the lab's variables.
fn command(directory: &Path) -> Command {
    let mut command = Command::new(troupe());
    command
        .env_clear()
        .env("HOME", directory.join("home"))
        .env("PATH", env::var_os("PATH").unwrap_or_default())
        .env("TROUPE_LOG", "info")
        .current_dir(directory)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Returns a `runner.yaml` whose programs use the stand-in as their provider. JSON is valid YAML.
fn runner_yaml(url: &str) -> Value {
    let url = url.trim_end_matches('/');
    json!({"programs": [
        {
            "kind": "codex",
            "models": ["gpt-*"],
            "command": program(CODEX),
            "environment": {"STANDIN_KEY": KEY},
            "provider": "standin",
            "settings": {"model_providers": {"standin": {
                "name": "standin",
                "base_url": format!("{url}/v1"),
                "wire_api": "responses",
                "env_key": "STANDIN_KEY",
                "request_max_retries": 1,
                "stream_max_retries": 0,
            }}},
        },
        {
            "kind": "claude",
            "models": ["claude-*"],
            "command": program(CLAUDE),
            "environment": {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY},
        },
        {
            "kind": "acp",
            "profile": "opencode",
            "models": ["standin/*"],
            "command": program(OPENCODE),
            // A turn must not need the package registry, so this address does not respond.
            "environment": {"npm_config_registry": "http://127.0.0.1:9"},
            "settings": {
                "enabled_providers": ["standin"],
                "small_model": "standin/m1",
                "provider": {"standin": {
                    "npm": "@ai-sdk/openai-compatible",
                    "name": "standin",
                    "options": {"baseURL": format!("{url}/v1"), "apiKey": KEY},
                    "models": {"m1": {"name": "m1", "tool_call": true, "reasoning": true, "limit": {"context": 100_000, "output": 8_000}}},
                }},
            },
        },
        {
            "kind": "acp",
            "profile": "gemini",
            "models": ["gemini-*"],
            "command": program(GEMINI),
            "environment": {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": url},
        },
    ]})
}

// === agents ===

/// Spawns an agent with this role below the root. The task contains the steps for the stand-in.
pub async fn spawn(tree: &Tree, role: &str, steps: &Value) -> String {
    tree.spawn_for(role, &format!("Do it. {}", script(steps))).await.id
}

/// Sends an agent input for its next turn, with steps for the stand-in.
pub async fn send(tree: &Tree, thread: &str, steps: &Value) {
    tree.send(thread, &format!("And now: {}", script(steps))).await;
}

/// Waits until the agent is settled and returns its thread.
pub async fn settled(tree: &Tree, thread: &str) -> Thread {
    let request = WaitAgentsRequest {
        thread_ids: vec![thread.to_owned()],
        ..WaitAgentsRequest::default()
    };
    within("the end of a turn", tree.client().wait_agents(request))
        .await
        .unwrap();
    tree.thread(thread).await
}

/// Returns the last message of an agent or the text of its error.
#[must_use]
pub fn message(thread: &Thread) -> &str {
    thread.status.as_ref().map_or("", |status| status.message.as_str())
}

// === processes ===

/// Returns the command lines of a thread's processes: its program and the processes that the program started.
#[must_use]
pub fn processes(thread: &str) -> Vec<String> {
    let wanted = format!("TROUPE_THREAD_ID={thread}");
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        // A process may end in the meantime.
        let Ok(environment) = fs::read(process.path().join("environ")) else {
            continue;
        };
        if environment
            .split(|&byte| byte == 0)
            .any(|line| line == wanted.as_bytes())
        {
            let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
            let name = String::from_utf8_lossy(process.file_name().as_bytes()).into_owned();
            found.push(format!("{name} {}", String::from_utf8_lossy(&line).replace('\0', " ")));
        }
    }
    found
}

/// Waits until a thread runs `tail -f`, which tests use as a command that does not end.
pub async fn wait_for_tail(thread: &str) {
    until("a command", async || runs_tail(thread).then_some(())).await;
}

/// Returns whether the thread runs `tail -f`.
#[must_use]
pub fn runs_tail(thread: &str) -> bool {
    let is_it = |line: &String| {
        line.split_once(' ')
            .is_some_and(|(_, line)| line.starts_with("tail -f"))
    };
    processes(thread).iter().any(is_it)
}

/// Waits until no process of the threads is left.
pub async fn wait_for_process_end(threads: &[&str]) {
    until("the end of every process", async || {
        threads.iter().all(|thread| processes(thread).is_empty()).then_some(())
    })
    .await;
}
