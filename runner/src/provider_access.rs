//! Access of one program to its model providers.
//!
//! A program gets the address of a local proxy in place of each provider's address, and a placeholder in place of each
//! key, because programs pass their environment to the commands that they run. The proxies hold the keys and count the
//! requests of the program. [`TrafficObserver`] limits the rate of these requests. The thread reports a gap for keys
//! that the proxies cannot hold and for requests that they cannot count.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use serde_json::{Map, Value, json};
use svc_kit::limits::{Area, Limit};
use tokio::{sync::watch, time::Instant};

use crate::{
    agent::{AgentEvent, Secret},
    env::Environment,
    http_client,
    programs::AgentProgram,
    provider_proxy::{self, ProviderProxy, Traffic, Upstream},
    redact,
};

/// Maximum number of requests within [`WINDOW`] that a program may send without progress before it is stopped.
const MAX_REQUESTS: usize = 40;
/// The period for [`MAX_REQUESTS`].
const WINDOW: Duration = Duration::from_secs(60);

/// Variables with certificates that the program trusts but the proxy does not.
const OWN_CERTIFICATES: [&str; 3] = ["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR"];
/// The variable with the base URL of Claude Code's provider, and its default.
const CLAUDE_ADDRESS: (&str, &str) = ("ANTHROPIC_BASE_URL", "https://api.anthropic.com");
/// The variables with Claude Code's keys.
const CLAUDE_KEYS: [&str; 2] = ["ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY"];
/// Variables with which Claude Code uses another provider or a login.
const CLAUDE_OTHERS: [&str; 4] = [
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_OAUTH_TOKEN",
];
/// The default base URL of Gemini CLI's provider with an API key.
const GEMINI_URL: &str = "https://generativelanguage.googleapis.com";
/// The variable with another base URL for Gemini CLI.
pub(crate) const GEMINI_ENDPOINT: &str = "GOOGLE_GEMINI_BASE_URL";
/// The variable with Gemini CLI's key.
const GEMINI_KEY: &str = "GEMINI_API_KEY";
/// The built-in provider of Codex, and its base URL.
const CODEX_PROVIDER: (&str, &str) = ("openai", "https://api.openai.com/v1");
/// The variables with Codex's keys.
const CODEX_KEYS: [&str; 2] = ["OPENAI_API_KEY", "CODEX_API_KEY"];
/// The OpenCode providers whose key is in a variable, with that variable.
const OPENCODE_KEYS: [(&str, &str); 3] = [
    ("anthropic", "ANTHROPIC_API_KEY"),
    ("openai", "OPENAI_API_KEY"),
    ("openrouter", "OPENROUTER_API_KEY"),
];

/// The gap of a program whose requests do not pass a proxy.
const UNCOUNTED: &str =
    "the rate of its requests is not limited: with a login or a cloud provider they do not pass the runner's proxy";
/// The gap of a login that is lent to a program.
const READABLE_LOGIN: &str = "its commands can read the login file that is lent to it";

/// Returns the limits of the proxies, for the limits reference.
#[must_use]
pub fn limits() -> Area {
    Area::new(
        "Model providers",
        vec![
            Limit::count(
                "requests of an agent program without progress in 1 min, until the program is stopped",
                MAX_REQUESTS,
            ),
            Limit::count(
                "connections of an agent program to one provider at once; others wait",
                provider_proxy::MAX_CONNECTIONS,
            ),
            Limit::time(
                "an agent program, to send the headers of a request",
                provider_proxy::HEADER_TIMEOUT,
            ),
            Limit::time("a connection to a provider, with TLS", http_client::CONNECT_TIMEOUT),
        ],
    )
}

/// The proxies of one program. Dropping them ends its access to its providers.
#[derive(Debug)]
pub(crate) struct ProviderAccess {
    counter: watch::Sender<Traffic>,
    proxies: Vec<ProviderProxy>,
    placeholders: BTreeSet<String>,
    gaps: Vec<String>,
    /// Whether the runner displays failures of the provider because the program itself does not report them.
    shows_failures: bool,
}

impl ProviderAccess {
    fn new(has_login: bool) -> Self {
        Self {
            counter: watch::Sender::new(Traffic::default()),
            proxies: Vec::new(),
            placeholders: BTreeSet::new(),
            gaps: has_login.then(|| READABLE_LOGIN.to_owned()).into_iter().collect(),
            shows_failures: false,
        }
    }

    /// Returns the access of Codex, and changes its settings to use the proxies.
    pub(crate) async fn of_codex(
        program: &AgentProgram,
        config: &mut Map<String, Value>,
        environment: &mut Environment,
    ) -> Self {
        let mut access = Self::new(program.login.is_some());
        if has_own_route(environment) {
            return access;
        }
        let provider = provider_of_codex(program, config).to_owned();
        let fields = config
            .get_mut("model_providers")
            .and_then(|providers| providers.get_mut(&provider)?.as_object_mut());
        match fields {
            Some(fields) => access.reach_provider_of_codex(fields, environment).await,
            None if program.login.is_some() => access.gaps.push(UNCOUNTED.to_owned()),
            None if provider == CODEX_PROVIDER.0 => {
                let address = config.get("openai_base_url").and_then(Value::as_str);
                let address = address.unwrap_or(CODEX_PROVIDER.1).to_owned();
                if let Some(url) = access.reach_with(&address, &CODEX_KEYS, environment).await {
                    config.insert("openai_base_url".to_owned(), url.into());
                }
            }
            None => {}
        }
        access
    }

    /// Starts the proxy of an operator's provider. The key is in a variable or in the provider's settings.
    async fn reach_provider_of_codex(&mut self, fields: &mut Map<String, Value>, environment: &mut Environment) {
        const TOKEN: &str = "experimental_bearer_token";
        let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
        let (Some(address), variable, token) = (text("base_url"), text("env_key"), text(TOKEN)) else {
            return;
        };
        let Some(token) = token else {
            let variables: Vec<&str> = variable.iter().map(String::as_str).collect();
            if let Some(url) = self.reach_with(&address, &variables, environment).await {
                fields.insert("base_url".to_owned(), url.into());
            }
            return;
        };
        if let Some((url, placeholders)) = self.reach(&address, vec![token]).await {
            fields.insert("base_url".to_owned(), url.into());
            fields.insert(TOKEN.to_owned(), placeholders.concat().into());
        }
    }

    /// Returns the access of Claude Code, and changes its environment to use the proxies.
    pub(crate) async fn of_claude(program: &AgentProgram, environment: &mut Environment) -> Self {
        let mut access = Self::new(program.login.is_some());
        let has_key = CLAUDE_KEYS.iter().any(|name| value(environment, name).is_some());
        let is_other = CLAUDE_OTHERS.iter().any(|name| value(environment, name).is_some());
        if has_key && !is_other && !has_own_route(environment) {
            let (variable, default) = CLAUDE_ADDRESS;
            let address = value(environment, variable).unwrap_or_else(|| default.to_owned());
            if let Some(url) = access.reach_with(&address, &CLAUDE_KEYS, environment).await {
                environment.insert(variable.to_owned(), url.into());
            }
        } else if !has_key && (program.login.is_some() || is_other) {
            access.gaps.push(UNCOUNTED.to_owned());
        }
        // The other key is passed in an open file.
        access.note_visible(environment, |name| name == CLAUDE_KEYS[0]);
        access
    }

    /// Returns the access of Gemini CLI, and changes its environment to use the proxies. Without a key, Gemini CLI uses
    /// a login or Vertex AI, which have their own addresses.
    pub(crate) async fn of_gemini(program: &AgentProgram, has_key: bool, environment: &mut Environment) -> Self {
        let mut access = Self::new(program.login.is_some());
        access.shows_failures = true;
        if has_key && !has_own_route(environment) {
            let address = value(environment, GEMINI_ENDPOINT).unwrap_or_else(|| GEMINI_URL.to_owned());
            if let Some(url) = access.reach_with(&address, &[GEMINI_KEY], environment).await {
                environment.insert(GEMINI_ENDPOINT.to_owned(), url.into());
            }
        } else if !has_key {
            access.gaps.push(UNCOUNTED.to_owned());
        }
        access.note_visible(environment, is_credential);
        access
    }

    /// Returns the access of OpenCode, and changes its settings to use the proxies. `provider` is the provider of its
    /// model.
    pub(crate) async fn of_opencode(
        program: &AgentProgram,
        provider: Option<&str>,
        config: &mut Value,
        environment: &mut Environment,
    ) -> Self {
        let mut access = Self::new(program.login.is_some());
        access.shows_failures = true;
        let configured: Vec<String> = config["provider"]
            .as_object()
            .into_iter()
            .flat_map(|providers| providers.keys().cloned())
            .collect();
        if !has_own_route(environment) {
            let with_variable = OPENCODE_KEYS
                .into_iter()
                .filter(|(_, variable)| value(environment, variable).is_some())
                .map(|(name, _)| name.to_owned());
            let names: BTreeSet<String> = with_variable
                .chain(provider.map(str::to_owned))
                .chain(configured.iter().cloned())
                .collect();
            for name in names {
                access.reach_provider_of_opencode(&name, config, environment).await;
            }
        }
        for name in configured {
            let key = config["provider"][&name]["options"]["apiKey"]
                .as_str()
                .unwrap_or_default();
            if !key.is_empty() && !key.starts_with('{') && !access.placeholders.contains(key) {
                access.gaps.push(format!(
                    "its commands can read the `apiKey` of provider \"{name}\", whose settings need a `baseURL`"
                ));
            }
        }
        access.note_visible(environment, is_credential);
        access
    }

    async fn reach_provider_of_opencode(&mut self, provider: &str, config: &mut Value, environment: &mut Environment) {
        let Some(address) = opencode_base_url(config, provider).map(str::to_owned) else {
            return;
        };
        let configured = config["provider"][provider]["options"]["apiKey"].as_str();
        let variable = match configured {
            // `{env:NAME}` is the value of a variable.
            Some(key) => key.strip_prefix("{env:").and_then(|name| name.strip_suffix('}')),
            None => OPENCODE_KEYS
                .into_iter()
                .find(|(name, _)| *name == provider)
                .map(|(_, variable)| variable),
        };
        let literal = configured.filter(|key| !key.is_empty() && !key.starts_with('{'));
        let url = match literal {
            Some(key) => {
                let Some((url, placeholders)) = self.reach(&address, vec![key.to_owned()]).await else {
                    return;
                };
                config["provider"][provider]["options"]["apiKey"] = placeholders.concat().into();
                Some(url)
            }
            None => {
                let variables: Vec<String> = variable.map(str::to_owned).into_iter().collect();
                let variables: Vec<&str> = variables.iter().map(String::as_str).collect();
                self.reach_with(&address, &variables, environment).await
            }
        };
        if let Some(url) = url {
            redirect(config, provider, &url);
        }
    }

    /// Starts a proxy for an address. The proxy holds the keys in these variables. Returns the URL of the proxy.
    async fn reach_with(&mut self, address: &str, variables: &[&str], environment: &mut Environment) -> Option<String> {
        let (names, keys): (Vec<&str>, Vec<String>) = variables
            .iter()
            .filter_map(|&name| Some((name, value(environment, name)?)))
            .unzip();
        let (url, placeholders) = self.reach(address, keys).await?;
        for (name, placeholder) in names.into_iter().zip(placeholders) {
            environment.insert(name.to_owned(), placeholder.into());
        }
        Some(url)
    }

    /// Starts a proxy for an address. The proxy holds these keys. Returns the URL of the proxy and the placeholders of
    /// the keys. `None`: the proxy cannot be started, and the program has to call its provider directly.
    async fn reach(&mut self, address: &str, keys: Vec<String>) -> Option<(String, Vec<String>)> {
        let started = match Upstream::new(address, keys) {
            Ok(upstream) => {
                let placeholders = upstream.placeholders();
                let proxy = ProviderProxy::start(upstream, self.counter.clone()).await;
                proxy
                    .map(|proxy| (proxy, placeholders))
                    .map_err(|error| error.to_string())
            }
            Err(why) => Err(why),
        };
        let (proxy, placeholders) = started
            .inspect_err(|why| tracing::warn!(why, "a program reaches its provider without a proxy"))
            .ok()?;
        let url = proxy.base_url().to_owned();
        self.placeholders.extend(placeholders.iter().cloned());
        self.proxies.push(proxy);
        Some((url, placeholders))
    }

    /// Records a gap for variables that still contain a key.
    fn note_visible(&mut self, environment: &Environment, is_key: impl Fn(&str) -> bool) {
        let is_held = |value: &str| value.is_empty() || self.placeholders.contains(value);
        let visible: Vec<&str> = environment
            .iter()
            .filter(|(name, value)| is_key(name) && !is_held(&value.to_string_lossy()))
            .map(|(name, _)| name.as_str())
            .collect();
        if !visible.is_empty() {
            let gap = format!("its commands can read {} in their environment", visible.join(", "));
            self.gaps.push(gap);
        }
    }

    /// Returns the gaps for keys that are not held and for requests that are not counted.
    pub(crate) fn gaps(&self) -> impl Iterator<Item = String> {
        self.gaps.iter().cloned()
    }
}

fn provider_of_codex<'a>(program: &'a AgentProgram, config: &'a Map<String, Value>) -> &'a str {
    let configured = config.get("model_provider").and_then(Value::as_str);
    program.provider.as_deref().or(configured).unwrap_or(CODEX_PROVIDER.0)
}

/// Returns the key with which Codex has to log in to its built-in provider. As a server, Codex ignores keys in its
/// environment. A login or an operator's provider needs no key.
pub(crate) fn login_key_of_codex(
    program: &AgentProgram,
    config: &Map<String, Value>,
    environment: &Environment,
) -> Option<Secret> {
    if program.login.is_some() || provider_of_codex(program, config) != CODEX_PROVIDER.0 {
        return None;
    }
    CODEX_KEYS
        .iter()
        .find_map(|name| value(environment, name))
        .map(Secret::new)
}

/// Returns whether a variable contains a credential, by its name.
fn is_credential(name: &str) -> bool {
    name.ends_with("_KEY") || name.ends_with("_TOKEN")
}

/// Returns whether a program reaches its provider through an HTTP proxy or with its own certificates. A local proxy
/// uses neither the HTTP proxy nor these certificates, so such a program must call its provider directly.
fn has_own_route(environment: &Environment) -> bool {
    environment.iter().any(|(name, value)| {
        let name = name.to_ascii_uppercase();
        let is_proxy = name.ends_with("_PROXY") && name != "NO_PROXY";
        !value.is_empty() && (is_proxy || OWN_CERTIFICATES.contains(&name.as_str()))
    })
}

/// Returns the value of a variable, if it is not empty.
fn value(environment: &Environment, name: &str) -> Option<String> {
    let value = environment.get(name)?.to_str()?;
    Some(value.to_owned()).filter(|value| !value.is_empty())
}

/// Returns the base URL of an OpenCode provider: the configured URL, or the URL of a well-known provider. `None`:
/// unknown.
fn opencode_base_url<'a>(config: &'a Value, provider: &str) -> Option<&'a str> {
    let configured = config["provider"][provider]["options"]["baseURL"].as_str();
    // Another package may have another protocol and other URLs.
    let is_own = config["provider"][provider]["npm"].is_null();
    configured.or(match provider {
        "anthropic" if is_own => Some("https://api.anthropic.com/v1"),
        "openai" if is_own => Some("https://api.openai.com/v1"),
        "openrouter" if is_own => Some("https://openrouter.ai/api/v1"),
        "google" if is_own => Some("https://generativelanguage.googleapis.com/v1beta"),
        _ => None,
    })
}

/// Redirects an OpenCode provider to another address.
pub(crate) fn redirect(config: &mut Value, provider: &str, endpoint: &str) {
    let mut place = config;
    for key in ["provider", provider, "options"] {
        let below = &mut place[key];
        if !below.is_object() {
            *below = json!({});
        }
        place = below;
    }
    place["baseURL"] = endpoint.into();
}

/// Turns a program's traffic into events of its agent.
#[derive(Debug)]
pub(crate) struct TrafficObserver {
    /// Held as long as the program runs.
    access: ProviderAccess,
    traffic: watch::Receiver<Traffic>,
    seen: Traffic,
    guard: RequestGuard,
}

impl TrafficObserver {
    pub(crate) fn new(access: ProviderAccess) -> Self {
        Self {
            traffic: access.counter.subscribe(),
            access,
            seen: Traffic::default(),
            guard: RequestGuard::default(),
        }
    }

    /// Records that the program made progress, so that its requests until now do not count as a loop.
    pub(crate) fn note_progress(&mut self) {
        self.guard.reset();
    }

    /// Returns the next event: an activity, or the end of a program that sends too many requests without progress.
    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> AgentEvent {
        loop {
            // An error is not possible, because `access` has a sender.
            if self.traffic.changed().await.is_err() {
                return std::future::pending().await;
            }
            let now = self.traffic.borrow_and_update().clone();
            let before = std::mem::replace(&mut self.seen, now);
            let requests = self.seen.requests.saturating_sub(before.requests);
            if let Some(why) = self.guard.count(requests, Instant::now()) {
                return AgentEvent::Exited(why);
            }
            if self.access.shows_failures
                && let Some(activity) = activity(&before, &self.seen)
            {
                return AgentEvent::Activity(activity);
            }
        }
    }
}

/// Returns the activity that shows a change in the number of failures. Empty: the provider answers again. `None`: the
/// number has not changed.
fn activity(before: &Traffic, now: &Traffic) -> Option<String> {
    match now.failures {
        failures if failures == before.failures => None,
        0 => Some(String::new()),
        attempt => Some(provider_error(&now.last_failure, attempt)),
    }
}

/// Returns the activity of a program whose provider failed.
pub(crate) fn provider_error(failure: &str, attempt: u32) -> String {
    redact::detail(&format!("provider error {failure}, attempt {attempt}"))
}

/// Detects a program that sends requests without making progress.
#[derive(Debug, Default)]
struct RequestGuard {
    /// The times of the last requests since the last progress, at most [`MAX_REQUESTS`].
    times: VecDeque<Instant>,
}

impl RequestGuard {
    fn reset(&mut self) {
        self.times.clear();
    }

    /// Counts requests. Returns why the program has to stop, if there are too many.
    fn count(&mut self, requests: u64, now: Instant) -> Option<String> {
        for _ in 0..requests.min(MAX_REQUESTS as u64) {
            if self.times.len() == MAX_REQUESTS {
                self.times.pop_front();
            }
            self.times.push_back(now);
        }
        let first = *self.times.front().filter(|_| self.times.len() == MAX_REQUESTS)?;
        let time = now.saturating_duration_since(first);
        (time <= WINDOW).then(|| {
            let seconds = time.as_secs().max(1);
            format!(
                "provider request rate: {MAX_REQUESTS} requests in {seconds} s without progress; check that the provider's \
                 base URL and model are right, then send the agent input to continue"
            )
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn environment(values: &[(&str, &str)]) -> Environment {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.into());
        values.iter().map(owned).collect()
    }

    fn is_local(url: &str) -> bool {
        url.starts_with("http://127.0.0.1:")
    }

    fn program(login: Option<&str>) -> AgentProgram {
        AgentProgram {
            login: login.map(Into::into),
            ..AgentProgram::codex()
        }
    }

    #[tokio::test]
    async fn keys_of_opencode_are_replaced_by_placeholders() {
        let mut config = json!({"provider": {
            "p": {"options": {"baseURL": "http://p.example/v1", "apiKey": "secret-1"}},
            "q": {"options": {"baseURL": "http://q.example/v1", "apiKey": "{env:Q_KEY}"}},
        }});
        let mut given = environment(&[("OPENAI_API_KEY", "secret-2"), ("Q_KEY", "secret-3")]);
        let access = ProviderAccess::of_opencode(&program(None), Some("p"), &mut config, &mut given).await;
        assert_eq!((access.proxies.len(), access.gaps().count()), (3, 0));
        assert!(!format!("{given:?} {config}").contains("secret-"), "{given:?} {config}");
        for provider in ["p", "q", "openai"] {
            let url = config["provider"][provider]["options"]["baseURL"].as_str().unwrap();
            assert!(is_local(url) && url.ends_with("/v1"), "{url}");
        }

        let mut config = json!({"provider": {"r": {"npm": "x", "options": {"apiKey": "secret"}}}});
        let access = ProviderAccess::of_opencode(&program(None), Some("r"), &mut config, &mut Environment::new()).await;
        let gaps: Vec<String> = access.gaps().collect();
        assert!(gaps.len() == 1 && gaps[0].contains("provider \"r\""), "{gaps:?}");
    }

    #[tokio::test]
    async fn keys_of_gemini_and_claude_are_replaced_by_placeholders() {
        let mut given = environment(&[("GEMINI_API_KEY", "secret-1"), ("GOOGLE_API_KEY", "other")]);
        let access = ProviderAccess::of_gemini(&program(None), true, &mut given).await;
        let gaps: Vec<String> = access.gaps().collect();
        assert_eq!(gaps, ["its commands can read GOOGLE_API_KEY in their environment"]);
        assert!(is_local(&value(&given, GEMINI_ENDPOINT).unwrap()));

        let names = ["ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY"];
        let mut claudes = environment(&names.map(|name| (name, "secret-2")));
        let access = ProviderAccess::of_claude(&program(None), &mut claudes).await;
        assert_eq!(access.gaps().count(), 0);
        assert!(is_local(&value(&claudes, "ANTHROPIC_BASE_URL").unwrap()));
        assert!(!format!("{given:?} {claudes:?}").contains("secret-"));

        // With its own certificates the program calls its provider directly.
        claudes = environment(&[("ANTHROPIC_AUTH_TOKEN", "t"), ("SSL_CERT_FILE", "f")]);
        let access = ProviderAccess::of_claude(&program(None), &mut claudes).await;
        let gaps: Vec<String> = access.gaps().collect();
        assert_eq!(
            gaps,
            ["its commands can read ANTHROPIC_AUTH_TOKEN in their environment"]
        );
    }

    #[tokio::test]
    async fn codex_reaches_its_provider_by_proxy_unless_it_has_a_login() {
        let settings = json!({
            "model_provider": "p",
            "model_providers": {"p": {"base_url": "http://p.example/v1", "env_key": "P_KEY"}},
        });
        let mut config = settings.as_object().unwrap().clone();
        let mut given = environment(&[("P_KEY", "secret")]);
        let access = ProviderAccess::of_codex(&program(None), &mut config, &mut given).await;
        assert_eq!(access.gaps().count(), 0);
        assert!(is_local(config["model_providers"]["p"]["base_url"].as_str().unwrap()));
        assert!(!format!("{given:?}").contains("secret"));

        let (mut config, mut given) = (Map::new(), environment(&[("OPENAI_API_KEY", "secret")]));
        ProviderAccess::of_codex(&program(None), &mut config, &mut given).await;
        assert!(is_local(config["openai_base_url"].as_str().unwrap()));
        assert!(!format!("{given:?}").contains("secret"));
        let key = login_key_of_codex(&program(None), &config, &given).unwrap();
        assert_eq!(Some(key.expose()), value(&given, "OPENAI_API_KEY").as_deref());
        assert!(login_key_of_codex(&program(Some("/login")), &config, &given).is_none());
        assert!(login_key_of_codex(&program(None), settings.as_object().unwrap(), &given).is_none());

        let mut config = Map::new();
        let access = ProviderAccess::of_codex(&program(Some("/login")), &mut config, &mut Environment::new()).await;
        let gaps: Vec<String> = access.gaps().collect();
        assert_eq!(
            (gaps, config.len()),
            (vec![READABLE_LOGIN.to_owned(), UNCOUNTED.to_owned()], 0)
        );
    }

    #[tokio::test]
    async fn provider_failures_are_shown_until_success() {
        let mut access = ProviderAccess::new(false);
        access.shows_failures = true;
        let counter = access.counter.clone();
        let mut observer = TrafficObserver::new(access);
        counter.send_modify(|traffic| {
            traffic.failures = 2;
            traffic.last_failure = "429".to_owned();
        });
        let event = observer.next().await;
        assert_eq!(event, AgentEvent::Activity("provider error 429, attempt 2".to_owned()));
        counter.send_modify(|traffic| traffic.failures = 0);
        assert_eq!(observer.next().await, AgentEvent::Activity(String::new()));
    }

    #[test]
    fn too_many_requests_without_progress_stop_program() {
        let start = Instant::now();
        let mut guard = RequestGuard::default();
        assert_eq!(guard.count(MAX_REQUESTS as u64 - 1, start), None);
        guard.reset();
        assert_eq!(guard.count(MAX_REQUESTS as u64 - 1, start), None);
        let later = start + WINDOW + Duration::from_secs(1);
        assert_eq!(guard.count(1, later), None, "a slow sequence is not a loop");
        let why = guard.count(MAX_REQUESTS as u64, later).unwrap();
        assert!(why.contains("40 requests in 1 s without progress"), "{why}");
    }

    #[test]
    fn opencode_provider_is_redirected() {
        let mut config = json!({"provider": {"p": {"options": {"apiKey": "k", "baseURL": "a"}}, "q": 1}, "agent": {}});
        for provider in ["p", "q"] {
            redirect(&mut config, provider, "b");
        }
        let providers = json!({"p": {"options": {"apiKey": "k", "baseURL": "b"}}, "q": {"options": {"baseURL": "b"}}});
        assert_eq!(config["provider"], providers);
    }
}
