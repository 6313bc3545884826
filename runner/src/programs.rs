//! The programs of a runner, in the order of its operator's list, and the selection of one for a thread.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
};

use globset::{Glob, GlobMatcher};
use http::Uri;
use serde::Deserialize;
use serde_json::{Map, Value};
use svc_kit::shown_token::ShownToken;
use troupe_client::{host::is_this_machine, tls::ClientFiles};

/// The placeholder for a program's own default model.
const DEFAULT_MODEL: &str = "default";
/// Maximum size of a `runner.yaml`, in bytes.
const MAX_FILE_BYTES: u64 = 256 * 1024;

/// The credentials that programs read from their environment, with the variables that contain their base URLs. A
/// program that inherits a credential also inherits these variables: otherwise it would send the credential to another
/// host.
const BASE_URLS: &[(&str, &[&str])] = &[
    ("OPENAI_API_KEY", &["OPENAI_BASE_URL"]),
    ("CODEX_API_KEY", &["OPENAI_BASE_URL"]),
    ("ANTHROPIC_API_KEY", &["ANTHROPIC_BASE_URL"]),
    ("ANTHROPIC_AUTH_TOKEN", &["ANTHROPIC_BASE_URL"]),
    ("CLAUDE_CODE_OAUTH_TOKEN", &["ANTHROPIC_BASE_URL"]),
    ("GEMINI_API_KEY", &["GOOGLE_GEMINI_BASE_URL"]),
    ("GOOGLE_API_KEY", &["GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL"]),
    ("OPENROUTER_API_KEY", &["OPENROUTER_BASE_URL"]),
    ("AZURE_API_KEY", &["AZURE_RESOURCE_NAME", "AZURE_BASE_URL"]),
    ("AZURE_OPENAI_API_KEY", &["AZURE_OPENAI_ENDPOINT"]),
    ("MISTRAL_API_KEY", &["MISTRAL_BASE_URL"]),
    ("GROQ_API_KEY", &["GROQ_BASE_URL"]),
    ("XAI_API_KEY", &["XAI_BASE_URL"]),
    ("DEEPSEEK_API_KEY", &["DEEPSEEK_BASE_URL"]),
];

/// Appends the base URL variables of the credentials among `names`.
fn with_base_urls(mut names: Vec<String>) -> Vec<String> {
    for (credential, base_urls) in BASE_URLS {
        if !names.iter().any(|name| name == credential) {
            continue;
        }
        for base_url in *base_urls {
            if !names.iter().any(|name| name == base_url) {
                names.push((*base_url).to_owned());
            }
        }
    }
    names
}

/// Returns whether a variable contains a base URL and no credential.
pub(crate) fn is_base_url(name: &str) -> bool {
    BASE_URLS.iter().any(|(_, base_urls)| base_urls.contains(&name))
}

/// The programs of a runner. The first program that supports a thread's provider and model executes the thread.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The programs, in order of preference.
    pub programs: Vec<Program>,
    /// Paths that only threads with full access may read. A path that starts with `~/` is in the home of the runner's
    /// user.
    pub hidden: Vec<String>,
    /// Whether Landlock confines programs where bubblewrap does not work.
    pub landlock: bool,
}

/// The default of `hidden` in a `runner.yaml`: credentials of the runner's user, and sockets by which a program could
/// start another program outside of its sandbox.
pub const HIDDEN: &[&str] = &[
    "~/.ssh",
    "~/.aws",
    "~/.azure",
    "~/.config/gcloud",
    "~/.gnupg",
    "~/.kube",
    "~/.docker",
    "~/.config/gh",
    "~/.config/troupe",
    "~/.netrc",
    "~/.npmrc",
    "~/.pypirc",
    "~/.git-credentials",
    "~/.config/git/credentials",
    "~/.cargo/credentials.toml",
    "~/.password-store",
    "~/.local/share/keyrings",
    "~/.codex/auth.json",
    "~/.codex/sessions",
    "~/.claude.json",
    "~/.claude/.credentials.json",
    "~/.claude/projects",
    "~/.gemini/oauth_creds.json",
    "~/.local/share/opencode",
    "/run/user",
    "/run/dbus",
    "/run/docker.sock",
    "/run/containerd",
    "/run/crio",
    "/run/podman",
];

/// One program: its start parameters, and its providers and models.
#[derive(Clone, Debug)]
pub struct Program {
    /// The kind of program.
    pub kind: ProgramKind,
    /// The providers whose models the program can use. Empty: any provider.
    pub providers: Vec<String>,
    /// The models that the program can use. Empty: any model.
    pub models: Vec<GlobMatcher>,
    /// The models that replace the models of roles, the most specific pattern first. `None`: the program's own default.
    pub aliases: Vec<(GlobMatcher, Option<String>)>,
}

/// A program that speaks the line protocol of `docs/process-protocol.md`.
#[derive(Clone, Debug)]
pub struct ProcessProgram {
    /// The program: a path, or a name that is looked up in PATH.
    pub command: PathBuf,
    /// The program's arguments.
    pub args: Vec<String>,
    /// The variables that the program inherits from the runner, in addition to the variables without secrets.
    pub inherit: Vec<String>,
    /// Variables with fixed values.
    pub environment: BTreeMap<String, String>,
    /// Whether bubblewrap, if it works, prevents the programs of READ_ONLY threads from writing.
    pub confine: bool,
    /// Whether the operator guarantees that the program does not write where a READ_ONLY thread must not write.
    pub holds_read_only: bool,
}

impl ProcessProgram {
    /// Returns a program without confinement and without variables.
    #[must_use]
    pub fn new<A: Into<String>>(command: impl Into<PathBuf>, args: impl IntoIterator<Item = A>) -> Self {
        Self {
            command: command.into(),
            args: args.into_iter().map(Into::into).collect(),
            inherit: Vec::new(),
            environment: BTreeMap::new(),
            confine: false,
            holds_read_only: false,
        }
    }
}

/// The kind of program, with the settings of that kind.
#[derive(Clone, Debug)]
pub enum ProgramKind {
    /// A program that speaks the line protocol of `docs/process-protocol.md`.
    Process(ProcessProgram),
    /// OpenAI's Codex, through its app-server.
    Codex(AgentProgram),
    /// Anthropic's Claude Code, through its JSON stream.
    Claude(AgentProgram),
    /// A program that speaks the Agent Client Protocol.
    Acp(AcpProgram),
    /// A remote agent that speaks the Agent2Agent protocol.
    A2a(A2aProgram),
}

/// A remote agent that speaks the Agent2Agent protocol.
#[derive(Clone, Debug)]
pub struct A2aProgram {
    /// The agent's URL. The path of the agent's card is below this URL.
    pub url: Uri,
    /// The binding that is used. `None`: the first of JSON-RPC and HTTP+JSON that the agent's card offers.
    pub binding: Option<A2aBinding>,
    /// The token that each request contains.
    pub token: Option<ShownToken>,
    /// The certificate authorities for the agent's certificate, instead of the public ones.
    pub authorities: Option<PathBuf>,
}

/// A binding of the Agent2Agent protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum A2aBinding {
    /// JSON-RPC 2.0.
    #[serde(rename = "JSONRPC")]
    JsonRpc,
    /// JSON over HTTP.
    #[serde(rename = "HTTP+JSON")]
    HttpJson,
}

impl A2aBinding {
    /// Returns the binding's name in agent cards.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::JsonRpc => "JSONRPC",
            Self::HttpJson => "HTTP+JSON",
        }
    }
}

/// Parts of the names of variables that contain credentials.
const SECRET_NAMES: [&str; 6] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "AUTH"];

impl ProgramKind {
    /// Returns the credentials in the program's environment.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let (inherit, environment) = match self {
            Self::Process(program) => (&program.inherit, &program.environment),
            Self::Codex(program) | Self::Claude(program) => (&program.inherit, &program.environment),
            Self::Acp(program) => (&program.program.inherit, &program.program.environment),
            Self::A2a(program) => {
                let token = program.token.as_ref().map(|token| token.present().expose().to_owned());
                return token.into_iter().collect();
            }
        };
        let inherited = inherit
            .iter()
            .filter_map(|name| Some((name, std::env::var(name).ok()?)));
        let given = environment.iter().map(|(name, value)| (name, value.clone()));
        let is_secret = |name: &str| SECRET_NAMES.iter().any(|part| name.to_ascii_uppercase().contains(part));
        inherited
            .chain(given)
            .filter(|(name, _)| is_secret(name))
            .map(|(_, value)| value)
            .collect()
    }
}

/// An agent program that speaks the Agent Client Protocol.
#[derive(Clone, Debug)]
pub struct AcpProgram {
    /// The profile, which adds what the protocol does not cover: instructions and policies.
    pub profile: Profile,
    /// The start parameters.
    pub program: AgentProgram,
    /// The arguments that select the protocol.
    pub args: Vec<String>,
}

/// The programs that speak the Agent Client Protocol and can enforce a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// OpenCode.
    OpenCode,
    /// Google's Gemini CLI.
    Gemini,
}

/// An agent program that has its own tools and calls its provider itself.
#[derive(Clone, Debug)]
pub struct AgentProgram {
    /// The program: a path, or a name that is looked up in PATH.
    pub command: PathBuf,
    /// The variables that the program inherits from the runner: its credentials, and no other secrets.
    pub inherit: Vec<String>,
    /// Variables with fixed values.
    pub environment: BTreeMap<String, String>,
    /// The login file of a person. It is linked into the program's own directory.
    pub login: Option<PathBuf>,
    /// The program's name of the provider. `None`: the program's default.
    pub provider: Option<String>,
    /// Settings of the program, in its own format.
    pub settings: Map<String, Value>,
}

/// An error in a list of programs. The text names the file.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ProgramsError(String);

impl ProgramsError {
    fn new(path: &str, problem: impl fmt::Display) -> Self {
        Self(format!("{path}: {problem}"))
    }
}

impl Programs {
    /// Reads a `runner.yaml`.
    ///
    /// # Errors
    ///
    /// See [`ProgramsError`].
    pub fn read(path: &Path) -> Result<Self, ProgramsError> {
        let shown = path.display().to_string();
        let unreadable = |error| ProgramsError(format!("cannot read {shown}: {error}"));
        let bytes = fs::metadata(path).map_err(unreadable)?.len();
        if bytes > MAX_FILE_BYTES {
            return Err(ProgramsError(format!(
                "{shown} has {bytes} bytes; at most {MAX_FILE_BYTES} are read"
            )));
        }
        let text = fs::read_to_string(path).map_err(unreadable)?;
        Self::parse(&text, &shown)
    }

    /// Reads the text of a `runner.yaml`; `path` is for messages.
    ///
    /// # Errors
    ///
    /// See [`ProgramsError`].
    pub fn parse(text: &str, path: &str) -> Result<Self, ProgramsError> {
        let file: File = serde_yaml::from_str(text).map_err(|error| ProgramsError::new(path, error))?;
        if file.programs.is_empty() {
            return Err(ProgramsError(format!(
                "{path} lists no programs; add one, as `programs: [{{kind: codex}}]`"
            )));
        }
        let programs = file.programs.into_iter().map(|entry| entry.into_program(path));
        let named = |path: &String| path.starts_with('/') || path.starts_with("~/");
        if let Some(relative) = file.hidden.iter().flatten().find(|path| !named(path)) {
            let problem = format!("hidden: \"{relative}\" is relative; start it with / or ~/");
            return Err(ProgramsError::new(path, problem));
        }
        let programs: Self = programs.collect::<Result<Vec<_>, _>>()?.into();
        Ok(Self {
            hidden: file.hidden.unwrap_or(programs.hidden),
            landlock: file.landlock,
            ..programs
        })
    }

    /// Returns the programs, in order of preference.
    #[must_use]
    pub fn all(&self) -> &[Program] {
        &self.programs
    }

    /// Returns the hidden paths for a user with that home.
    pub(crate) fn hidden_from(&self, home: Option<&Path>) -> Vec<PathBuf> {
        let absolute = |path: &String| match path.strip_prefix("~/") {
            Some(below) => Some(home?.join(below)),
            None => Some(path.into()),
        };
        // A mount on a link does not cover the target of the link.
        let resolved = |path: PathBuf| fs::canonicalize(&path).unwrap_or(path);
        self.hidden.iter().filter_map(absolute).map(resolved).collect()
    }

    /// Returns the index of the first matching program. `None`: no program matches. An empty provider or model matches
    /// every program.
    #[must_use]
    pub fn choose(&self, provider: &str, model: &str) -> Option<usize> {
        self.programs.iter().position(|program| program.fits(provider, model))
    }
}

impl From<Program> for Programs {
    fn from(program: Program) -> Self {
        vec![program].into()
    }
}

impl From<Vec<Program>> for Programs {
    fn from(programs: Vec<Program>) -> Self {
        Self {
            programs,
            hidden: HIDDEN.iter().map(|&path| path.to_owned()).collect(),
            landlock: false,
        }
    }
}

impl From<ProcessProgram> for Programs {
    fn from(program: ProcessProgram) -> Self {
        Program::any(ProgramKind::Process(program)).into()
    }
}

impl Program {
    /// Returns a list with this one program for every thread.
    #[must_use]
    pub const fn any(kind: ProgramKind) -> Self {
        Self {
            kind,
            providers: Vec::new(),
            models: Vec::new(),
            aliases: Vec::new(),
        }
    }

    /// Returns the program, changed so that it uses its default model in place of any model that a role names. Such a
    /// program can run every role.
    ///
    /// # Errors
    ///
    /// Never: the pattern is valid.
    pub fn with_default_model(self) -> Result<Self, globset::Error> {
        self.with_model(DEFAULT_MODEL)
    }

    /// Returns the program, changed so that it uses `model` in place of any model that a role names. `default`: the
    /// program's own default.
    ///
    /// # Errors
    ///
    /// Never: the pattern is valid.
    pub fn with_model(mut self, model: &str) -> Result<Self, globset::Error> {
        self.aliases = vec![(Glob::new("*")?.compile_matcher(), alias(model))];
        Ok(self)
    }

    fn fits(&self, provider: &str, model: &str) -> bool {
        let has_provider =
            self.providers.is_empty() || provider.is_empty() || self.providers.iter().any(|known| known == provider);
        let has_model =
            self.models.is_empty() || model.is_empty() || self.models.iter().any(|known| known.is_match(model));
        has_provider && has_model
    }

    /// Returns the program's model for the model that a role names. `None`: the program's own default.
    #[must_use]
    pub fn model_for(&self, model: &str) -> Option<String> {
        match self.aliases.iter().find(|(pattern, _)| pattern.is_match(model)) {
            Some((_, alias)) => alias.clone(),
            None => Some(model.to_owned()).filter(|model| !model.is_empty()),
        }
    }
}

impl AgentProgram {
    /// Returns a program with Codex's usual command and credentials.
    #[must_use]
    pub fn codex() -> Self {
        Self::new("codex", &["OPENAI_API_KEY", "CODEX_API_KEY"])
    }

    /// Returns a program with Claude Code's usual command and credentials.
    #[must_use]
    pub fn claude() -> Self {
        Self::new(
            "claude",
            &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"],
        )
    }

    /// Returns a program with OpenCode's usual command and credentials.
    #[must_use]
    pub fn opencode() -> Self {
        Self::new(
            "opencode",
            &[
                "OPENCODE_API_KEY",
                "ANTHROPIC_API_KEY",
                "OPENAI_API_KEY",
                "OPENROUTER_API_KEY",
            ],
        )
    }

    /// Returns a program with Gemini CLI's usual command and credentials.
    #[must_use]
    pub fn gemini() -> Self {
        Self::new("gemini", &["GEMINI_API_KEY", "GOOGLE_API_KEY"])
    }

    fn new(command: &str, inherit: &[&str]) -> Self {
        Self {
            command: command.into(),
            inherit: with_base_urls(inherit.iter().map(|&name| name.to_owned()).collect()),
            environment: BTreeMap::new(),
            login: None,
            provider: None,
            settings: Map::new(),
        }
    }
}

impl AcpProgram {
    /// Returns the program of that profile with its usual settings.
    #[must_use]
    pub fn of(profile: Profile) -> Self {
        let (program, argument) = match profile {
            Profile::OpenCode => (AgentProgram::opencode(), "acp"),
            Profile::Gemini => (AgentProgram::gemini(), "--acp"),
        };
        Self {
            profile,
            program,
            args: vec![argument.to_owned()],
        }
    }
}

/// A `runner.yaml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    programs: Vec<Entry>,
    hidden: Option<Vec<String>>,
    #[serde(default)]
    landlock: bool,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Process,
    Codex,
    Claude,
    Acp,
    A2a,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    kind: Kind,
    profile: Option<Profile>,
    #[serde(default)]
    providers: Vec<String>,
    #[serde(default)]
    models: Vec<String>,
    #[serde(default)]
    model_aliases: BTreeMap<String, String>,
    command: Option<PathBuf>,
    #[serde(default)]
    args: Vec<String>,
    inherit: Option<Vec<String>>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    login: Option<PathBuf>,
    provider: Option<String>,
    #[serde(default)]
    settings: Map<String, Value>,
    #[serde(default)]
    holds_read_only: bool,
    #[serde(default)]
    confine: bool,
    url: Option<String>,
    binding: Option<A2aBinding>,
    token_file: Option<PathBuf>,
    ca: Option<PathBuf>,
}

impl Entry {
    fn into_program(self, path: &str) -> Result<Program, ProgramsError> {
        let pattern = |key, text: &str| match Glob::new(text) {
            Ok(glob) => Ok(glob.compile_matcher()),
            Err(error) => Err(ProgramsError::new(path, format!("{key}: {error}"))),
        };
        let models = self.models.iter().map(|text| pattern("models", text));
        let models = models.collect::<Result<_, _>>()?;
        let aliases = self.model_aliases.iter();
        let mut aliases = aliases
            .map(|(from, to)| Ok((pattern("model_aliases", from)?, alias(to))))
            .collect::<Result<Vec<_>, ProgramsError>>()?;
        // A name is more specific than a pattern, and a longer pattern is more specific than a shorter one.
        let breadth = |pattern: &GlobMatcher| {
            let text = pattern.glob().glob();
            (text.contains(['*', '?']), std::cmp::Reverse(text.len()))
        };
        aliases.sort_by_key(|(pattern, _)| breadth(pattern));
        Ok(Program {
            providers: self.providers.clone(),
            models,
            aliases,
            kind: self.into_kind(path)?,
        })
    }

    fn into_kind(self, path: &str) -> Result<ProgramKind, ProgramsError> {
        let agent = |convention: AgentProgram, entry: Self| AgentProgram {
            command: entry.command.unwrap_or(convention.command),
            inherit: entry.inherit.map_or(convention.inherit, with_base_urls),
            environment: entry.environment,
            login: entry.login,
            provider: entry.provider,
            settings: entry.settings,
        };
        let problem = |problem: &str| ProgramsError::new(path, format!("a program of kind {problem}"));
        Ok(match self.kind {
            Kind::Codex => ProgramKind::Codex(agent(AgentProgram::codex(), self)),
            Kind::Claude => ProgramKind::Claude(agent(AgentProgram::claude(), self)),
            Kind::Acp => {
                let profile = self
                    .profile
                    .ok_or_else(|| problem("acp needs a profile: opencode or gemini"))?;
                let convention = AcpProgram::of(profile);
                let args = if self.args.is_empty() {
                    convention.args
                } else {
                    self.args.clone()
                };
                ProgramKind::Acp(AcpProgram {
                    profile,
                    args,
                    program: agent(convention.program, self),
                })
            }
            Kind::A2a => {
                let remote = self.into_remote(Path::new(path).parent());
                ProgramKind::A2a(remote.map_err(|why| problem(&format!("a2a: {why}")))?)
            }
            Kind::Process => ProgramKind::Process(ProcessProgram {
                command: self.command.ok_or_else(|| problem("process needs a command"))?,
                args: self.args,
                inherit: with_base_urls(self.inherit.unwrap_or_default()),
                environment: self.environment,
                confine: self.confine,
                holds_read_only: self.holds_read_only,
            }),
        })
    }
}

impl Entry {
    /// Returns the remote agent. The paths of its files are relative to `directory`.
    fn into_remote(self, directory: Option<&Path>) -> Result<A2aProgram, String> {
        let text = self
            .url
            .ok_or("it needs a url, such as https://agents.example.com/a2a/NAME")?;
        let url: Uri = text
            .parse()
            .map_err(|error| format!("url: \"{text}\" is not a URL: {error}"))?;
        let host = url.host().unwrap_or_default();
        let is_https = url.scheme_str() == Some("https");
        let is_usable = (is_https || url.scheme_str() == Some("http")) && !host.is_empty();
        if !is_usable || url.query().is_some() || url.authority().is_some_and(|at| at.as_str().contains('@')) {
            return Err(format!(
                "url: \"{text}\" must begin with https:// or http://, without a user and a query"
            ));
        }
        if self.token_file.is_some() && !is_https && !is_this_machine(host) {
            return Err(format!(
                "token_file: the token would be sent to \"{text}\" unencrypted; use https"
            ));
        }
        let resolved = |file: PathBuf| directory.unwrap_or(Path::new("")).join(file);
        let authorities = self.ca.map(resolved);
        let files = ClientFiles {
            authorities: authorities.clone(),
            identity: None,
        };
        files.client_config().map_err(|error| format!("ca: {error}"))?;
        let token = self.token_file.map(|file| ShownToken::load(resolved(file)));
        Ok(A2aProgram {
            url,
            binding: self.binding,
            token: token.transpose().map_err(|error| format!("token_file: {error}"))?,
            authorities,
        })
    }
}

/// Returns the model of an alias. `None`: the program's own default.
fn alias(model: &str) -> Option<String> {
    (model != DEFAULT_MODEL).then(|| model.to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const FILE: &str = "
programs:
  - kind: codex
    providers: [openai]
    models: ['gpt-*']
  - kind: claude
    providers: [anthropic]
    inherit: [MY_KEY]
    model_aliases: {'*': default, 'gpt-*': opus, 'gpt-5.5': sonnet}
  - kind: process
    command: my-agent
    args: [--fast]
    holds_read_only: true
";

    fn programs() -> Programs {
        Programs::parse(FILE, "runner.yaml").unwrap()
    }

    #[test]
    fn base_urls_are_inherited_with_keys() {
        let claude = AgentProgram::claude().inherit;
        assert_eq!(claude.iter().filter(|name| *name == "ANTHROPIC_BASE_URL").count(), 1);
        for (program, base_urls) in [
            (AgentProgram::codex(), &["OPENAI_BASE_URL"][..]),
            (AgentProgram::gemini(), &["GOOGLE_GEMINI_BASE_URL"]),
            (AgentProgram::opencode(), &["OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"]),
        ] {
            for base_url in base_urls {
                assert!(program.inherit.iter().any(|name| name == base_url), "{base_url}");
            }
        }
        let file = "programs:\n- {kind: claude, inherit: [ANTHROPIC_API_KEY]}\n- {kind: claude, inherit: [MY_KEY]}\n- {kind: \
                    process, command: c, inherit: [OPENAI_API_KEY, OPENAI_BASE_URL]}";
        let programs = Programs::parse(file, "runner.yaml").unwrap();
        let inherited: Vec<_> = programs
            .all()
            .iter()
            .map(|program| match &program.kind {
                ProgramKind::Claude(program) | ProgramKind::Codex(program) => program.inherit.clone(),
                ProgramKind::Process(program) => program.inherit.clone(),
                ProgramKind::Acp(program) => program.program.inherit.clone(),
                ProgramKind::A2a(_) => Vec::new(),
            })
            .collect();
        assert_eq!(inherited[0], ["ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"]);
        assert_eq!(inherited[1], ["MY_KEY"]);
        assert_eq!(inherited[2], ["OPENAI_API_KEY", "OPENAI_BASE_URL"]);
    }

    #[test]
    fn first_matching_program_is_selected() {
        for (provider, model, place) in [
            ("openai", "gpt-5.5", Some(0)),
            ("openai", "o9", Some(2)),
            ("", "gpt-5.5", Some(0)),
            ("", "claude-sonnet-5", Some(1)),
            ("anthropic", "gpt-5.5", Some(1)),
            ("elsewhere", "x", Some(2)),
            ("", "", Some(0)),
        ] {
            assert_eq!(programs().choose(provider, model), place, "{provider} {model}");
        }
        let codex = Programs::parse("programs: [{kind: codex, providers: [openai]}]", "f").unwrap();
        assert_eq!(codex.choose("anthropic", ""), None);
    }

    #[test]
    fn most_specific_alias_renames_model() {
        let programs = programs();
        let [codex, claude, _] = programs.all() else { panic!() };
        let named = |name: &str| Some(name.to_owned());
        assert_eq!(claude.model_for("gpt-5.5"), named("sonnet"));
        assert_eq!(claude.model_for("gpt-6"), named("opus"));
        assert_eq!(claude.model_for("anything"), None);
        assert_eq!(codex.model_for("gpt-5.5"), named("gpt-5.5"));
        assert_eq!(codex.model_for(""), None);
    }

    #[test]
    fn omitted_setting_has_conventional_default() {
        let programs = programs();
        let kinds: Vec<_> = programs.all().iter().map(|program| &program.kind).collect();
        let [
            ProgramKind::Codex(codex),
            ProgramKind::Claude(claude),
            ProgramKind::Process(process),
        ] = kinds[..]
        else {
            panic!()
        };
        assert_eq!(codex.command, Path::new("codex"));
        assert!(codex.inherit.iter().any(|name| name == "OPENAI_API_KEY"));
        assert_eq!(claude.inherit, ["MY_KEY"]);
        assert!(process.holds_read_only && process.args == ["--fast"]);
    }

    #[test]
    fn acp_profile_sets_default_command() {
        let text = "programs: [{kind: acp, profile: opencode}, {kind: acp, profile: gemini, command: node, args: [g.js, \
                    --acp]}]";
        let programs = Programs::parse(text, "f").unwrap();
        let started: Vec<_> = programs
            .all()
            .iter()
            .map(|program| match &program.kind {
                ProgramKind::Acp(acp) => (acp.profile, acp.program.command.to_str().unwrap(), acp.args.join(" ")),
                other => panic!("{other:?}"),
            })
            .collect();
        let expected = [
            (Profile::OpenCode, "opencode", "acp".to_owned()),
            (Profile::Gemini, "node", "g.js --acp".to_owned()),
        ];
        assert_eq!(started, expected);
    }

    #[test]
    fn remote_agent_files_are_relative_to_runner_yaml() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runner.yaml");
        fs::write(directory.path().join("token"), "remote-token-of-test").unwrap();
        let entry = "{kind: a2a, url: 'https://a:1/b', binding: HTTP+JSON, token_file: token}";
        fs::write(&path, format!("programs: [{entry}]")).unwrap();
        let programs = Programs::read(&path).unwrap();
        let [Program { kind, .. }] = programs.all() else {
            panic!()
        };
        assert_eq!(kind.secrets(), ["remote-token-of-test"]);
        assert!(matches!(kind, ProgramKind::A2a(remote) if remote.binding == Some(A2aBinding::HttpJson)));
        assert!(!format!("{kind:?}").contains("remote-token"), "{kind:?}");
    }

    #[test]
    fn unusable_setting_is_named_in_error() {
        for (text, words) in [
            ("programs: []", "lists no programs"),
            ("{}", "lists no programs"),
            ("programs: [{kind: process}]", "needs a command"),
            ("programs: [{kind: acp}]", "needs a profile"),
            ("programs: [{kind: acp, profile: zed}]", "unknown variant `zed`"),
            ("programs: [{kind: codex, modells: [x]}]", "unknown field `modells`"),
            ("programs: [{kind: cursor}]", "unknown variant `cursor`"),
            ("programs: [{kind: codex, models: ['[']}]", "models: "),
            ("{programs: [{kind: codex}], hidden: [.ssh]}", "\".ssh\" is relative"),
            ("programs: [{kind: a2a}]", "it needs a url"),
            ("programs: [{kind: a2a, url: 'ftp://a/'}]", "must begin with https://"),
            ("programs: [{kind: a2a, url: 'https://u:p@a/'}]", "without a user"),
            (
                "programs: [{kind: a2a, url: 'https://a/', binding: GRPC}]",
                "unknown variant `GRPC`",
            ),
            (
                "programs: [{kind: a2a, url: 'http://a/', token_file: t}]",
                "unencrypted; use https",
            ),
            (
                "programs: [{kind: a2a, url: 'https://a/', token_file: /no/such}]",
                "token_file: cannot read /no/such",
            ),
            (
                "programs: [{kind: a2a, url: 'https://a/', ca: /no/such}]",
                "ca: cannot read /no/such",
            ),
            ("programs: {", "runner.yaml: "),
        ] {
            let error = Programs::parse(text, "runner.yaml").unwrap_err().to_string();
            assert!(
                error.contains(words) && error.starts_with("runner.yaml"),
                "{text}: {error}"
            );
        }
    }
}
