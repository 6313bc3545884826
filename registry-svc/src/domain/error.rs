//! Every way in which the registry refuses a call, with the exact text and the facts that a client needs.

use crate::domain::{
    digest::Digest,
    malformed::Defect,
    name::{PersonaName, TemplateName},
};

/// Why a call is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// A field of the request is out of its bounds or contradicts another.
    #[error("{message}")]
    Argument {
        /// The field's path in the request.
        field: &'static str,
        /// What is wrong with it, with the limit.
        message: String,
    },
    /// Not a legal agent type. Holds the normalised name.
    #[error(
        "invalid agent_type {given:?}; expected snake_case or kebab-case like \"worker\", \"my_custom_role\", or \
         \"my-custom-role\""
    )]
    InvalidAgentType {
        /// The name, trimmed and lower-cased.
        given: String,
    },
    /// Kebab and snake spellings of the name exist and none is the name itself.
    #[error(
        "ambiguous agent_type {given:?}; matched multiple templates: {}. Use exact agent_type.",
        .candidates.join(", ")
    )]
    AmbiguousAgentType {
        /// The name as asked for.
        given: String,
        /// The names that it could be, sorted.
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
        /// What is wrong with it.
        defect: Defect,
    },
    /// The role has no such persona.
    #[error("unknown agent_name {:?} for agent_type \"{agent_type}\"", .agent_name.as_str())]
    UnknownPersona {
        /// The role.
        agent_type: TemplateName,
        /// The persona asked for.
        agent_name: PersonaName,
        /// The personas that it has, sorted.
        available: Vec<String>,
    },
    /// The role has no default prompt and not exactly one persona.
    #[error("agent_type \"{agent_type}\" requires agent_name selection")]
    PersonaRequired {
        /// The role.
        agent_type: TemplateName,
        /// The personas that it has, sorted.
        available: Vec<String>,
    },
    /// A persona without a role.
    #[error("agent_name requires a non-default agent_type")]
    PersonaWithoutRole,
    /// The catalogue does not have the model.
    #[error("unknown model {model:?} for spawn_agent. Available models: {}", or_none(.available))]
    UnknownModel {
        /// The model, after aliases.
        model: String,
        /// The models of the catalogue.
        available: Vec<String>,
    },
    /// The model does not think that hard, or nothing does.
    #[error(
        "reasoning_effort {effort:?} is not supported for model {model:?}. Supported efforts: {}",
        .supported.join(", ")
    )]
    UnsupportedEffort {
        /// The effort, trimmed and lower-cased.
        effort: String,
        /// The resolved model; `<default>` where none is.
        model: String,
        /// The efforts that would do.
        supported: Vec<String>,
    },
    /// The catalogue's models have other providers.
    #[error("unknown provider {provider:?}. Available providers: {}", or_none(.available))]
    UnknownProvider {
        /// The provider asked for.
        provider: String,
        /// The providers of the catalogue.
        available: Vec<String>,
    },
    /// The template is not the one that the request demands.
    #[error(
        "template \"{name}\" has digest {}, not the expected {expected}; resolve again without expected_digest to see \
         what changed",
        .actual.as_ref().map_or("(none)", Digest::as_str)
    )]
    DigestMismatch {
        /// The template, or `default`.
        name: String,
        /// What the request demands.
        expected: Digest,
        /// What it is; `None` where no template applies.
        actual: Option<Digest>,
    },
    /// The working directory is not an absolute path.
    #[error("cwd {cwd:?} is relative; give an absolute path")]
    CwdRelative {
        /// As given.
        cwd: String,
    },
    /// The working directory is named by a way that goes up.
    #[error("cwd {cwd:?} goes up by \"..\"; give the path that it leads to")]
    CwdGoesUp {
        /// As given.
        cwd: String,
    },
    /// The working directory does not exist.
    #[error("cwd {cwd:?} is not an existing directory")]
    CwdNotFound {
        /// As given.
        cwd: String,
    },
    /// The working directory lies outside the workspace roots.
    #[error("cwd {cwd:?} lies outside the workspace roots; start the registry with --workspace-root for it")]
    CwdOutsideRoots {
        /// As given.
        cwd: String,
    },
    /// No bundle of that digest is held.
    #[error("workspace {digest:?} is not known here; upload it with PutWorkspace")]
    WorkspaceUnknown {
        /// As given.
        digest: String,
    },
    /// The id of a call was used for another one.
    #[error("request_id {request_id:?} was already used with another request; use a new one")]
    RequestIdReused {
        /// As given.
        request_id: String,
    },
    /// As many watch as may.
    #[error("{max} streams of WatchAgents are open, which is the limit; close one, or try again later")]
    TooManyWatchers {
        /// The limit.
        max: usize,
    },
    /// The caller left before the registry could answer.
    #[error("the call ended before the registry had read all templates")]
    Abandoned,
    /// The service ends.
    #[error("the registry is shutting down; watch again")]
    Draining,
    /// A defect of the service; the log has the details.
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
