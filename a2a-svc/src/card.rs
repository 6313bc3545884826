//! Agent cards: what an exported role offers, and where.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use prost_types::{Struct, Value};
use troupe_proto::registry::v1::{Agent as Template, ListAgentsRequest};

use crate::{
    caller::{Caller, Callers},
    config::{Agent, Config},
    parts::{INPUT_MODES, OUTPUT_MODES},
    pb::{
        AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentProvider, AgentSkill,
        HttpAuthSecurityScheme, MutualTlsSecurityScheme, SecurityRequirement, SecurityScheme, StringList,
        security_scheme::Scheme,
    },
    render::SEQUENCE_EXTENSION,
    upstream::{Registry, brief},
};

/// The version of the protocol.
pub(crate) const PROTOCOL_VERSION: &str = "1.0";
/// The URI of the extension with the limits of a caller, in extended cards.
const LIMITS_EXTENSION: &str = "https://troupe.dev/a2a/extensions/limits/v1";
/// The name of the security scheme with bearer tokens.
const BEARER: &str = "bearer";
/// The name of the security scheme with client certificates.
const CERTIFICATE: &str = "certificate";
/// Time for which a template is cached.
const TEMPLATE_LIFETIME: Duration = Duration::from_secs(10);

/// Creates the cards of the exported roles.
pub(crate) struct Cards {
    registry: Registry,
    public_url: String,
    /// Host and port, for gRPC.
    grpc_address: String,
    templates: Mutex<HashMap<String, (Instant, Option<Template>)>>,
    /// The current tag of each card, and the time at which this process first saw the tag.
    seen: Mutex<HashMap<String, (String, SystemTime)>>,
}

impl Cards {
    pub(crate) fn new(registry: Registry, public_url: String) -> Self {
        let is_https = public_url.starts_with("https://");
        let rest = public_url
            .split_once("://")
            .map_or(public_url.as_str(), |(_, rest)| rest);
        let authority = rest.split('/').next().unwrap_or_default().to_owned();
        let host_end = authority.rfind(']').unwrap_or(0);
        let has_port = authority.get(host_end..).is_some_and(|rest| rest.contains(':'));
        let grpc_address = match has_port {
            true => authority,
            false => format!("{authority}:{}", if is_https { 443 } else { 80 }),
        };
        Self {
            registry,
            public_url,
            grpc_address,
            templates: Mutex::default(),
            seen: Mutex::default(),
        }
    }

    /// Returns the time since which this process has seen this tag on the card of an agent.
    pub(crate) fn first_seen(&self, agent: &str, tag: &str, now: SystemTime) -> SystemTime {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match seen.get(agent) {
            Some((known, since)) if known == tag => *since,
            _ => {
                seen.insert(agent.to_owned(), (tag.to_owned(), now));
                now
            }
        }
    }

    /// Returns the template of a role. If the registry cannot be reached, returns the last known template. `None`: the
    /// registry does not have the template, or the template was never read.
    async fn template(&self, agent: &Agent) -> Option<Template> {
        let known = {
            let templates = self.templates.lock().unwrap_or_else(PoisonError::into_inner);
            templates.get(&agent.id).cloned()
        };
        if let Some((read, template)) = &known
            && read.elapsed() < TEMPLATE_LIFETIME
        {
            return template.clone();
        }
        let request = ListAgentsRequest {
            cwd: agent.cwd.clone(),
            agent_type: Some(agent.role.clone()),
            expanded: true,
            allow_partial: true,
            ..ListAgentsRequest::default()
        };
        let template = match self.registry.clone().list_agents(brief(request)).await {
            Ok(response) => response.into_inner().agents.into_iter().next(),
            Err(status) => {
                tracing::warn!(agent = agent.id, code = ?status.code(), message = status.message(), "the template of a card cannot be read");
                known.and_then(|(_, template)| template)
            }
        };
        let mut templates = self.templates.lock().unwrap_or_else(PoisonError::into_inner);
        templates.insert(agent.id.clone(), (Instant::now(), template.clone()));
        template
    }

    pub(crate) async fn has_template(&self, agent: &Agent) -> bool {
        self.template(agent).await.is_some()
    }

    /// Returns the public card. It has neither prompts nor limits.
    pub(crate) async fn public(&self, config: &Config, agent: &Agent, callers: &Callers) -> AgentCard {
        let template = self.template(agent).await;
        let template = template.as_ref();
        let description = match (agent.description.is_empty(), template) {
            (false, _) => agent.description.clone(),
            (true, Some(template)) if !template.description.is_empty() => template.description.clone(),
            (true, _) => format!("The role {}.", agent.role),
        };
        let version = template
            .and_then(|template| template.source.as_ref())
            .and_then(|source| source.digest.get(..12))
            .unwrap_or("1");
        let base = format!("{}/a2a/{}", self.public_url, agent.id);
        let interface = |binding: &str, url: &str, tenant: &str| AgentInterface {
            url: url.to_owned(),
            protocol_binding: binding.to_owned(),
            tenant: tenant.to_owned(),
            protocol_version: PROTOCOL_VERSION.to_owned(),
        };
        let schemes = schemes(config, callers);
        let requirements = match callers.has_anonymous() {
            true => Vec::new(),
            // Each scheme alone is sufficient.
            false => schemes.keys().map(|name| requirement(name)).collect(),
        };
        AgentCard {
            name: agent.name.clone(),
            description: description.clone(),
            supported_interfaces: vec![
                interface("JSONRPC", &base, ""),
                interface("HTTP+JSON", &base, ""),
                interface("GRPC", &self.grpc_address, &agent.id),
            ],
            provider: config.provider.as_ref().map(|provider| AgentProvider {
                url: provider.url.clone(),
                organization: provider.organization.clone(),
            }),
            version: version.to_owned(),
            documentation_url: config.documentation_url.clone(),
            capabilities: Some(AgentCapabilities {
                streaming: Some(true),
                push_notifications: Some(true),
                extensions: vec![AgentExtension {
                    uri: SEQUENCE_EXTENSION.to_owned(),
                    description: String::from(
                        "The metadata `troupe/sequence` contains the position of a task or an update. A subscription with \
                         a position in the header `troupe-after-sequence` continues after that position.",
                    ),
                    required: false,
                    params: None,
                }],
                extended_agent_card: Some(true),
            }),
            security_schemes: schemes,
            security_requirements: requirements,
            default_input_modes: INPUT_MODES.iter().map(|mode| (*mode).to_owned()).collect(),
            default_output_modes: OUTPUT_MODES.iter().map(|mode| (*mode).to_owned()).collect(),
            skills: skills(agent, template, &description),
            ..AgentCard::default()
        }
    }

    /// Returns the card for a caller, with its limits.
    pub(crate) async fn extended(
        &self,
        config: &Config,
        agent: &Agent,
        callers: &Callers,
        caller: &Caller,
    ) -> AgentCard {
        let mut card = self.public(config, agent, callers).await;
        let template = self.template(agent).await;
        let model = match (agent.model.is_empty(), template.and_then(|template| template.model)) {
            (false, _) => agent.model.clone(),
            (true, model) => model.unwrap_or_default(),
        };
        let limits = caller.limits();
        let mut fields = Struct::default();
        let mut set = |key: &str, value: Value| fields.fields.insert(key.to_owned(), value);
        set("sandbox", agent.sandbox.as_str().into());
        if !model.is_empty() {
            set("model", model.into());
        }
        set("requestsPerMinute", limits.requests_per_minute.into());
        set("maxContexts", limits.max_contexts.into());
        set("maxCalls", limits.max_calls.into());
        for (key, tokens) in [
            ("contextTokenBudget", agent.token_budget),
            ("callerTokenBudget", limits.token_budget),
        ] {
            if tokens > 0 {
                // The value is a string, because ProtoJSON writes 64-bit numbers as strings.
                set(key, tokens.to_string().into());
            }
        }
        if let Some(capabilities) = &mut card.capabilities {
            capabilities.extensions.push(AgentExtension {
                uri: LIMITS_EXTENSION.to_owned(),
                description: String::from("The limits of this caller."),
                required: false,
                params: Some(fields),
            });
        }
        card
    }
}

/// Returns the ways in which callers identify themselves, by name.
fn schemes(config: &Config, callers: &Callers) -> BTreeMap<String, SecurityScheme> {
    let bearer = Scheme::HttpAuthSecurityScheme(HttpAuthSecurityScheme {
        description: String::from("A token from the operator of the agent."),
        scheme: String::from("Bearer"),
        bearer_format: String::new(),
    });
    let certificate = Scheme::MtlsSecurityScheme(MutualTlsSecurityScheme {
        description: String::from("A client certificate from an authority of the operator of the agent."),
    });
    let schemes = [
        (BEARER, bearer, callers.has_tokens()),
        (CERTIFICATE, certificate, config.knows_certificates),
    ];
    let offered = schemes.into_iter().filter(|(_, _, is_offered)| *is_offered);
    offered
        .map(|(name, scheme, _)| (name.to_owned(), SecurityScheme { scheme: Some(scheme) }))
        .collect()
}

fn requirement(scheme: &str) -> SecurityRequirement {
    SecurityRequirement {
        schemes: [(scheme.to_owned(), StringList::default())].into(),
    }
}

/// Returns the skill of the agent: its persona, or its role.
fn skills(agent: &Agent, template: Option<&Template>, description: &str) -> Vec<AgentSkill> {
    let mut tags = template.map(|template| template.keywords.clone()).unwrap_or_default();
    if tags.is_empty() {
        tags.push(agent.role.clone());
    }
    let skill = |id: &str, name: &str, description: &str| AgentSkill {
        id: id.to_owned(),
        name: name.to_owned(),
        description: description.to_owned(),
        tags: tags.clone(),
        ..AgentSkill::default()
    };
    let persona = template.and_then(|template| {
        template
            .agent_names
            .iter()
            .find(|persona| persona.name == agent.agent_name)
    });
    match persona {
        Some(persona) => vec![skill(&persona.name, &persona.name, &persona.description)],
        None => vec![skill(&agent.id, &agent.name, description)],
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::upstream::Upstream;

    #[tokio::test]
    async fn grpc_address_has_port() {
        let registry = Upstream {
            url: String::from("http://127.0.0.1:1"),
            token: None,
            tls: Default::default(),
        };
        for (url, address) in [
            ("https://agents.example.com", "agents.example.com:443"),
            ("https://agents.example.com/base", "agents.example.com:443"),
            ("http://127.0.0.1:8090", "127.0.0.1:8090"),
            ("http://[::1]", "[::1]:80"),
            ("http://[::1]:81", "[::1]:81"),
        ] {
            let cards = Cards::new(registry.registry().unwrap(), url.to_owned());
            assert_eq!(cards.grpc_address, address, "{url}");
        }
    }
}
