//! The registry's errors, with their exact texts and the details that a client needs.

use crate::domain::{
    digest::Digest,
    malformed::Defect,
    name::{InvalidAgentType, PersonaName, TemplateName},
};

/// The reason why a call is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// A field of the request is out of its bounds or contradicts another.
    #[error("{message}")]
    Argument {
        /// The field's path in the request.
        field: &'static str,
        /// The problem, with the limit.
        message: String,
    },
    /// The agent type is invalid.
    #[error(transparent)]
    InvalidAgentType(#[from] InvalidAgentType),
    /// Kebab-case and snake_case spellings of the name exist, and none matches it exactly.
    #[error(
        "ambiguous agent_type {given:?}; matched multiple templates: {}. Use exact agent_type.",
        .candidates.join(", ")
    )]
    AmbiguousAgentType {
        /// The requested name.
        given: String,
        /// The candidate names, sorted.
        candidates: Vec<String>,
    },
    /// No scope has a template of that name.
    #[error("missing agent template: {name}")]
    TemplateNotFound {
        /// The name.
        name: TemplateName,
    },
    /// The template that has the name cannot be used.
    #[error("invalid agent template \"{name}\": {defect}")]
    TemplateInvalid {
        /// The name.
        name: TemplateName,
        /// The defect.
        defect: Defect,
    },
    /// The role does not have the persona.
    #[error("unknown agent_name {:?} for agent_type \"{agent_type}\"", .agent_name.as_str())]
    UnknownPersona {
        /// The role.
        agent_type: TemplateName,
        /// The requested persona.
        agent_name: PersonaName,
        /// The role's personas, sorted.
        available: Vec<String>,
    },
    /// The role has no default prompt and zero or several personas.
    #[error("agent_type \"{agent_type}\" requires agent_name selection")]
    PersonaRequired {
        /// The role.
        agent_type: TemplateName,
        /// The role's personas, sorted.
        available: Vec<String>,
    },
    /// A persona without a role.
    #[error("agent_name requires a non-default agent_type")]
    PersonaWithoutRole,
    /// The catalogue does not have the model.
    #[error("unknown model {model:?} for spawn_agent. Available models: {}", or_none(.available))]
    UnknownModel {
        /// The model after alias resolution.
        model: String,
        /// The models of the catalogue.
        available: Vec<String>,
    },
    /// The model does not support the effort, or the effort does not exist.
    #[error(
        "reasoning_effort {effort:?} is not supported for model {model:?}. Supported efforts: {}",
        .supported.join(", ")
    )]
    UnsupportedEffort {
        /// The effort, trimmed and lower-cased.
        effort: String,
        /// The resolved model, or `<default>` without a model.
        model: String,
        /// The supported efforts.
        supported: Vec<String>,
    },
    /// The provider is not one of the catalogue's providers.
    #[error("unknown provider {provider:?}. Available providers: {}", or_none(.available))]
    UnknownProvider {
        /// The requested provider.
        provider: String,
        /// The providers of the catalogue.
        available: Vec<String>,
    },
    /// The template's digest differs from the digest that the request expects.
    #[error(
        "template \"{name}\" has digest {}, not the expected {expected}; resolve again without expected_digest to see \
         what changed",
        .actual.as_ref().map_or("(none)", Digest::as_str)
    )]
    DigestMismatch {
        /// The template, or `default`.
        name: String,
        /// The digest that the request expects.
        expected: Digest,
        /// The template's digest; `None` if no template applies.
        actual: Option<Digest>,
    },
    /// The working directory is not an absolute path.
    #[error("cwd {cwd:?} is relative; give an absolute path")]
    CwdRelative {
        /// The value from the request.
        cwd: String,
    },
    /// The path of the working directory contains `..`.
    #[error("cwd {cwd:?} goes up by \"..\"; give the path that it leads to")]
    CwdGoesUp {
        /// The value from the request.
        cwd: String,
    },
    /// The working directory does not exist.
    #[error("cwd {cwd:?} is not an existing directory")]
    CwdNotFound {
        /// The value from the request.
        cwd: String,
    },
    /// The working directory lies outside the workspace roots.
    #[error("cwd {cwd:?} lies outside the workspace roots; start the registry with --workspace-root for it")]
    CwdOutsideRoots {
        /// The value from the request.
        cwd: String,
    },
    /// The registry does not hold a bundle with that digest.
    #[error("workspace {digest:?} is not known here; upload it with PutWorkspace")]
    WorkspaceUnknown {
        /// The value from the request.
        digest: String,
    },
    /// The request id was already used for another call.
    #[error("request_id {request_id:?} was already used with another request; use a new one")]
    RequestIdReused {
        /// The value from the request.
        request_id: String,
    },
    /// The maximum number of WatchAgents streams is reached.
    #[error("{max} streams of WatchAgents are open, which is the limit; close one, or try again later")]
    TooManyWatchers {
        /// The limit.
        max: usize,
    },
    /// The caller disconnected before the registry could answer.
    #[error("the call ended before the registry had read all templates")]
    Abandoned,
    /// The service is shutting down.
    #[error("the registry is shutting down; watch again")]
    Draining,
    /// An internal error. The log has the details.
    #[error("internal error; the registry's log has the details")]
    Internal,
}

fn or_none(names: &[String]) -> String {
    if names.is_empty() {
        "<none>".to_owned()
    } else {
        names.join(", ")
    }
}
