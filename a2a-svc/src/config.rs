//! The configuration file: which roles are exported, and which callers may use them.

use std::{
    collections::BTreeSet,
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use http::Uri;
use serde::{Deserialize, Deserializer, de::Error as _};
use svc_kit::{
    duration,
    identity::is_name,
    secret::SecretError,
    token_file::{TokenFile, Tokens},
};
use troupe_client::host::is_loopback;
use troupe_proto::common::v1::Sandbox;

/// Maximum size of the file in bytes.
pub(crate) const MAX_BYTES: u64 = 256 * 1024;
/// Maximum number of agents and of callers.
pub(crate) const MAX_ENTRIES: usize = 100;
/// The name of callers without a token.
pub(crate) const ANONYMOUS: &str = "anonymous";

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {cause}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// The file is not valid.
    #[error("{}: {problem}", .path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The defect, and its remedy.
        problem: String,
    },
    /// The token of a caller cannot be used.
    #[error(transparent)]
    Token(#[from] SecretError),
    /// The port would be open to other machines.
    #[error(
        "refusing to serve A2A without tokens on {0}: remove `anonymous` from the file, listen on 127.0.0.1, or set --insecure"
    )]
    Open(SocketAddr),
}

/// The configuration of the service.
#[derive(Clone, Debug)]
pub struct Config {
    /// The URL in the agent cards, without a slash at its end. `None`: the URL of the listener.
    pub(crate) public_url: Option<String>,
    /// The exported roles. The first one is the default.
    pub(crate) agents: Vec<Agent>,
    /// The callers.
    pub(crate) callers: Vec<CallerConfig>,
    /// Whether certificates name callers.
    pub(crate) knows_certificates: bool,
    /// The operator of the service, for the cards: a URL and a name.
    pub(crate) provider: Option<Provider>,
    pub(crate) documentation_url: Option<String>,
    /// After this time without activity, a context is closed.
    pub(crate) close_idle_after: Duration,
    /// A closed context is deleted after this time. `None`: never.
    pub(crate) retention: Option<Duration>,
    /// Whether push notifications may go to private, loopback and link-local addresses.
    pub(crate) push_allow_private: bool,
    /// Whether a message with an id that the caller has used before is a repetition.
    pub(crate) deduplicate_messages: bool,
}

/// An exported role.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Agent {
    /// The role.
    pub(crate) role: String,
    /// The agent's id in URLs, and its tenant. Default: the role.
    #[serde(default)]
    pub(crate) id: String,
    /// The persona.
    #[serde(default)]
    pub(crate) agent_name: String,
    /// The name in the card. Default: the id.
    #[serde(default)]
    pub(crate) name: String,
    /// The description in the card. Default: the template's.
    #[serde(default)]
    pub(crate) description: String,
    /// The project's directory on the runner's machine.
    #[serde(default)]
    pub(crate) cwd: String,
    #[serde(default)]
    pub(crate) model: String,
    #[serde(default)]
    pub(crate) reasoning_effort: String,
    #[serde(default)]
    pub(crate) provider: String,
    /// The upper bound of the sandbox of the agent and its descendants.
    #[serde(default)]
    pub(crate) sandbox: SandboxName,
    /// The upper bound of the tools of the agent and its descendants. Empty: all tools except `deny_tools`.
    #[serde(default)]
    pub(crate) allow_tools: Vec<String>,
    #[serde(default)]
    pub(crate) deny_tools: Vec<String>,
    /// Tools whose every call needs an operator's approval.
    #[serde(default)]
    pub(crate) approve_tools: Vec<String>,
    /// Maximum number of tokens of a context. 0: no limit.
    #[serde(default)]
    pub(crate) token_budget: u64,
    /// Maximum number of turns of a context. 0: no limit.
    #[serde(default)]
    pub(crate) turn_budget: u32,
    pub(crate) max_depth: Option<u32>,
    pub(crate) max_threads: Option<u32>,
    /// Time limit of an approval. Default: the supervisor's default.
    #[serde(default, deserialize_with = "span")]
    pub(crate) approval_timeout: Option<Duration>,
    /// Whether the agent receives the id of each message as an additional line of its input.
    #[serde(default)]
    pub(crate) show_message_ids: bool,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SandboxName {
    ReadOnly,
    #[default]
    WorkspaceWrite,
    FullAccess,
}

impl SandboxName {
    pub(crate) const fn to_pb(self) -> Sandbox {
        match self {
            Self::ReadOnly => Sandbox::ReadOnly,
            Self::WorkspaceWrite => Sandbox::WorkspaceWrite,
            Self::FullAccess => Sandbox::FullAccess,
        }
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::WorkspaceWrite => "workspace-write",
            Self::FullAccess => "full-access",
        }
    }
}

/// The organization that serves the agents.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Provider {
    pub(crate) organization: String,
    pub(crate) url: String,
}

/// A caller with its limits.
#[derive(Clone, Debug)]
pub(crate) struct CallerConfig {
    /// The name in labels and logs.
    pub(crate) name: String,
    /// `None`: the caller has no tokens. It is the anonymous caller, or a certificate names the caller.
    pub(crate) tokens: Option<Tokens>,
    /// The ids of the agents that the caller may use. `None`: all agents.
    pub(crate) agents: Option<BTreeSet<String>>,
    pub(crate) limits: CallerLimits,
}

/// The limits of a caller.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CallerLimits {
    /// Maximum number of requests in a minute.
    pub(crate) requests_per_minute: u32,
    /// Maximum number of tokens of all stored contexts of the caller together. 0: no limit.
    pub(crate) token_budget: u64,
    /// Maximum number of open contexts.
    pub(crate) max_contexts: u32,
    /// Maximum number of calls and streams in progress.
    pub(crate) max_calls: u32,
}

impl Default for CallerLimits {
    fn default() -> Self {
        Self {
            requests_per_minute: 600,
            token_budget: 0,
            max_contexts: 100,
            max_calls: 64,
        }
    }
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    public_url: Option<String>,
    default_agent: Option<String>,
    agents: Vec<Agent>,
    #[serde(default)]
    callers: Vec<CallerEntry>,
    anonymous: Option<AnonymousEntry>,
    provider: Option<Provider>,
    documentation_url: Option<String>,
    #[serde(default, deserialize_with = "span")]
    close_idle_after: Option<Duration>,
    #[serde(default, deserialize_with = "span")]
    retention: Option<Duration>,
    #[serde(default)]
    push_allow_private: bool,
    deduplicate_messages: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallerEntry {
    name: String,
    token_file: Option<PathBuf>,
    agents: Option<BTreeSet<String>>,
    #[serde(default)]
    limits: CallerLimits,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AnonymousEntry {
    agents: Option<BTreeSet<String>>,
    limits: CallerLimits,
}

/// Default of `close_idle_after`.
const CLOSE_IDLE_AFTER: Duration = Duration::from_secs(24 * 3600);

fn span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| duration::parse(&text))
        .transpose()
        .map_err(D::Error::custom)
}

impl Config {
    /// Loads the file. The paths of token files are relative to the directory of this file. A caller without a token
    /// file needs a certificate.
    ///
    /// # Errors
    ///
    /// The file or a token file is missing or invalid. The message names the value and says what to do.
    pub fn load(path: &Path, knows_certificates: bool) -> Result<Self, ConfigError> {
        let read = |cause| ConfigError::Read {
            path: path.to_owned(),
            cause,
        };
        if fs::metadata(path).map_err(read)?.len() > MAX_BYTES {
            return Err(ConfigError::Invalid {
                path: path.to_owned(),
                problem: format!("the file has more than {MAX_BYTES} bytes"),
            });
        }
        let text = fs::read_to_string(path).map_err(read)?;
        let invalid = |problem: String| ConfigError::Invalid {
            path: path.to_owned(),
            problem,
        };
        let mut file: File = serde_yaml::from_str(&text).map_err(|error| invalid(error.to_string()))?;
        for agent in &mut file.agents {
            if agent.id.is_empty() {
                agent.id.clone_from(&agent.role);
            }
            if agent.name.is_empty() {
                agent.name.clone_from(&agent.id);
            }
        }
        check(&file, knows_certificates).map_err(invalid)?;
        if let Some(default) = &file.default_agent {
            file.agents.sort_by_key(|agent| agent.id != *default);
        }
        let directory = path.parent().unwrap_or(Path::new("."));
        let mut callers = Vec::new();
        for entry in file.callers {
            callers.push(CallerConfig {
                tokens: match &entry.token_file {
                    Some(file) => Some(TokenFile::load(directory.join(file))?),
                    None => None,
                },
                name: entry.name,
                agents: entry.agents,
                limits: entry.limits,
            });
        }
        if let Some(entry) = file.anonymous {
            callers.push(CallerConfig {
                name: ANONYMOUS.to_owned(),
                tokens: None,
                agents: entry.agents,
                limits: entry.limits,
            });
        }
        Ok(Self {
            public_url: file.public_url.map(|url| url.trim_end_matches('/').to_owned()),
            agents: file.agents,
            callers,
            knows_certificates,
            provider: file.provider,
            documentation_url: file.documentation_url,
            close_idle_after: file.close_idle_after.unwrap_or(CLOSE_IDLE_AFTER),
            retention: file.retention,
            push_allow_private: file.push_allow_private,
            deduplicate_messages: file.deduplicate_messages.unwrap_or(true),
        })
    }

    /// Rejects an address that is not loopback if anonymous callers are configured and `insecure` is not set.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Open`].
    pub fn refuse_open_bind(&self, address: SocketAddr, insecure: bool) -> Result<(), ConfigError> {
        let is_open = self.callers.iter().any(|caller| caller.name == ANONYMOUS);
        match is_open && !insecure && !is_loopback(address.ip()) {
            true => Err(ConfigError::Open(address)),
            false => Ok(()),
        }
    }
}

/// Returns whether a text can be an agent's id in a URL.
fn is_id(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    (1..=64).contains(&text.len()) && text.chars().all(fits)
}

fn check(file: &File, knows_certificates: bool) -> Result<(), String> {
    if file.agents.is_empty() || file.agents.len() > MAX_ENTRIES {
        return Err(format!(
            "`agents` has {} entries; expected 1 to {MAX_ENTRIES}",
            file.agents.len()
        ));
    }
    let mut ids = BTreeSet::new();
    for agent in &file.agents {
        if !is_id(&agent.id) {
            return Err(format!(
                "invalid agent id {:?}; expected 1 to 64 letters, digits, `_` and `-`, so give the role an `id`",
                agent.id
            ));
        }
        if !ids.insert(agent.id.as_str()) {
            return Err(format!(
                "the agent id {:?} is used twice; give one of the agents another `id`",
                agent.id
            ));
        }
    }
    if let Some(default) = &file.default_agent
        && !ids.contains(default.as_str())
    {
        return Err(format!(
            "`default_agent` is {default:?}, which is not the id of an agent"
        ));
    }
    if file.callers.is_empty() && file.anonymous.is_none() {
        return Err(String::from(
            "no caller may use the agents; add `callers`, or `anonymous: {}` for calls without a token",
        ));
    }
    if file.callers.len() > MAX_ENTRIES {
        return Err(format!("`callers` has more than {MAX_ENTRIES} entries"));
    }
    let mut names = BTreeSet::new();
    for caller in &file.callers {
        if !is_name(&caller.name) || caller.name == ANONYMOUS {
            return Err(format!(
                "invalid caller name {:?}; expected 1 to 128 ASCII letters, digits and characters of \
                 ._-:@/|+=,~; \"anonymous\" is reserved",
                caller.name
            ));
        }
        if caller.token_file.is_none() && !knows_certificates {
            return Err(format!(
                "the caller {:?} has no `token_file`; add one, or let certificates name callers with --tls-client-ca",
                caller.name
            ));
        }
        if !names.insert(caller.name.as_str()) {
            return Err(format!("the caller name {:?} is used twice", caller.name));
        }
    }
    let anonymous = file.anonymous.iter().map(|entry| (&entry.agents, &entry.limits));
    let callers = file.callers.iter().map(|entry| (&entry.agents, &entry.limits));
    for (agents, limits) in callers.chain(anonymous) {
        if let Some(unknown) = agents.iter().flatten().find(|id| !ids.contains(id.as_str())) {
            return Err(format!(
                "a caller names the agent {unknown:?}, which is not in `agents`"
            ));
        }
        if limits.requests_per_minute == 0 || limits.max_contexts == 0 || limits.max_calls == 0 {
            return Err(String::from(
                "`requests_per_minute`, `max_contexts` and `max_calls` must be at least 1",
            ));
        }
    }
    if let Some(url) = &file.public_url {
        let uri: Option<Uri> = url.parse().ok();
        let is_url = uri.is_some_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some() && uri.query().is_none()
        });
        if !is_url {
            return Err(format!(
                "invalid `public_url` {url:?}; expected a URL like https://agents.example.com"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Config, String> {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("token"), "0123456789abcdef").unwrap();
        let path = directory.path().join("a2a.yaml");
        fs::write(&path, text).unwrap();
        Config::load(&path, false).map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_follow_role() {
        let config =
            load("agents: [{role: explorer}, {role: worker, id: w}]\ndefault_agent: w\nanonymous: {}\n").unwrap();
        let ids: Vec<_> = config.agents.iter().map(|agent| agent.id.as_str()).collect();
        assert_eq!(ids, ["w", "explorer"]);
        assert_eq!(config.agents[1].name, "explorer");
        assert!(config.deduplicate_messages && config.retention.is_none());
    }

    #[test]
    fn invalid_file_is_rejected_with_value() {
        for (text, part) in [
            ("agents: []\nanonymous: {}", "0 entries"),
            ("agents: [{role: a}]", "no caller may use"),
            ("agents: [{role: a/b}]\nanonymous: {}", "a/b"),
            ("agents: [{role: a}, {role: a}]\nanonymous: {}", "used twice"),
            ("agents: [{role: a}]\ndefault_agent: b\nanonymous: {}", "\"b\""),
            ("agents: [{role: a}]\nanonymous: {agents: [b]}", "\"b\""),
            ("agents: [{role: a}]\nanonymous: {limits: {max_calls: 0}}", "at least 1"),
            ("agents: [{role: a, tokens: 1}]\nanonymous: {}", "unknown field"),
            (
                "agents: [{role: a}]\ncallers: [{name: anonymous, token_file: token}]",
                "anonymous",
            ),
            ("agents: [{role: a}]\ncallers: [{name: a}]", "--tls-client-ca"),
            (
                "agents: [{role: a}]\ncallers: [{name: a, token_file: missing}]",
                "missing",
            ),
            (
                "agents: [{role: a}]\nanonymous: {}\npublic_url: example.com",
                "public_url",
            ),
            ("agents: [{role: a}]\nanonymous: {}\nretention: soon", "soon"),
        ] {
            let error = load(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn anonymous_callers_need_loopback_or_insecure() {
        let anonymous = load("agents: [{role: a}]\nanonymous: {}").unwrap();
        let named = load("agents: [{role: a}]\ncallers: [{name: a, token_file: token}]").unwrap();
        let (local, open) = ("127.0.0.1:1".parse().unwrap(), "10.0.0.1:1".parse().unwrap());
        assert!(anonymous.refuse_open_bind(local, false).is_ok());
        assert!(anonymous.refuse_open_bind(open, false).is_err());
        assert!(anonymous.refuse_open_bind(open, true).is_ok());
        assert!(named.refuse_open_bind(open, false).is_ok());
    }
}
