//! The result of a resolution, with the origin of every value and the digest that identifies it.

use std::collections::BTreeMap;

use tool_policy::Layer;

use crate::domain::{
    catalog::Entry,
    dialect::Dialect,
    digest::{Digest, DigestBuilder},
    effort::Effort,
    prompt::{Block, Mode},
    sandbox::Sandbox,
    template::EdgeManagement,
};

/// The source that determined a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The request.
    Explicit,
    /// The selected persona.
    Persona,
    /// The role.
    Role,
    /// The parent.
    Inherited,
    /// An alias of the model catalogue.
    Alias,
    /// The service.
    Default,
}

impl Origin {
    /// Returns the name, for digests.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Explicit => "explicit",
            Self::Persona => "persona",
            Self::Role => "role",
            Self::Inherited => "inherited",
            Self::Alias => "alias",
            Self::Default => "default",
        }
    }
}

/// A value and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen<T> {
    /// The value.
    pub value: T,
    /// The source that determined the value.
    pub origin: Origin,
}

/// How a template's instructions relate to the inherited instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionsMode {
    /// They replace the inherited instructions.
    Replace,
    /// They are appended to the inherited instructions.
    Append,
    /// No instructions of a template apply. A graph template has only prompt blocks. Without a template, the inherited
    /// instructions apply.
    Blocks,
}

impl InstructionsMode {
    /// Returns the name, for digests.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Replace => "replace",
            Self::Append => "append",
            Self::Blocks => "blocks",
        }
    }

    /// Returns the mode of a dialect.
    #[must_use]
    pub const fn of(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Role | Dialect::Profile | Dialect::Foreign => Self::Replace,
            Dialect::Subagent => Self::Append,
            Dialect::Graph => Self::Blocks,
        }
    }
}

/// The result of a resolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The exact name of the template; `default` without one.
    pub agent_type: String,
    /// The selected persona.
    pub agent_name: Option<String>,
    /// The template's description.
    pub description: Option<String>,
    /// The role's text. Without a template, the parent's instructions. Empty for graph templates.
    pub instructions: String,
    /// The relation to the inherited instructions.
    pub instructions_mode: InstructionsMode,
    /// The blocks that are sent before the task.
    pub blocks: Vec<Block>,
    /// The block of each mode, independent of the mode of this resolution. These texts are shared, so the digest does
    /// not include them.
    pub mode_blocks: Vec<(Mode, Block)>,
    /// The model; `None`: the runner's default.
    pub model: Option<Chosen<String>>,
    /// The effort; `None`: the program's default.
    pub effort: Option<Chosen<Effort>>,
    /// The provider; `None`: the runner's default.
    pub provider: Option<Chosen<String>>,
    /// The URL that replaces the provider's base URL.
    pub endpoint: Option<String>,
    /// Settings for the provider, as JSON texts.
    pub parameters: BTreeMap<String, String>,
    /// The sandbox.
    pub sandbox: Chosen<Sandbox>,
    /// The policy layer that the template adds, if it restricts tools.
    pub tools: Option<Layer>,
    /// Patterns of the tools that children may have.
    pub grant_list: Vec<String>,
    /// Agent types that may be spawned.
    pub spawn_list: Vec<String>,
    /// The operations on the graph that the template allows.
    pub edge_management: EdgeManagement,
    /// The declared capabilities.
    pub capabilities: Vec<String>,
    /// The template; `None` without one.
    pub source: Option<Entry>,
    /// Warnings for the caller that do not prevent the spawn.
    pub warnings: Vec<String>,
}

impl Resolved {
    /// Returns the origin of each field that has a value, by field name.
    #[must_use]
    pub fn origins(&self) -> BTreeMap<&'static str, Origin> {
        let mut origins = BTreeMap::from([("sandbox", self.sandbox.origin)]);
        origins.extend(self.model.as_ref().map(|model| ("model", model.origin)));
        origins.extend(self.effort.as_ref().map(|effort| ("reasoning_effort", effort.origin)));
        origins.extend(self.provider.as_ref().map(|provider| ("provider", provider.origin)));
        origins
    }

    /// Returns the digest that identifies this resolution. It covers everything except for the warnings and the mode
    /// blocks.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut digest = DigestBuilder::new();
        digest
            .text("agent_type", &self.agent_type)
            .text("agent_name", self.agent_name.as_deref().unwrap_or_default())
            .text("description", self.description.as_deref().unwrap_or_default())
            .text("instructions", &self.instructions)
            .text("instructions_mode", self.instructions_mode.as_str());
        for block in &self.blocks {
            digest.text(block.kind.as_str(), block.sha256.as_str());
        }
        digest
            .text("model", self.model.as_ref().map_or("", |model| model.value.as_str()))
            .text(
                "effort",
                self.effort.as_ref().map_or("", |effort| effort.value.as_str()),
            )
            .text(
                "provider",
                self.provider.as_ref().map_or("", |provider| provider.value.as_str()),
            )
            .text("endpoint", self.endpoint.as_deref().unwrap_or_default())
            .list(
                "parameters",
                self.parameters
                    .iter()
                    .flat_map(|(key, value)| [key.as_str(), value.as_str()]),
            )
            .text("sandbox", self.sandbox.value.as_str());
        for (field, origin) in self.origins() {
            digest.text(field, origin.as_str());
        }
        if let Some(layer) = &self.tools {
            digest
                .text("origin", &layer.origin)
                .text("match", match_name(layer))
                .list("allow", layer.allow.iter().map(String::as_str))
                .list("deny", layer.deny.iter().map(String::as_str));
        }
        let edges = match self.edge_management {
            EdgeManagement::None => "none",
            EdgeManagement::Own => "self",
            EdgeManagement::All => "all",
        };
        digest
            .list("grant_list", self.grant_list.iter().map(String::as_str))
            .list("spawn_list", self.spawn_list.iter().map(String::as_str))
            .text("edge_management", edges)
            .list("capabilities", self.capabilities.iter().map(String::as_str));
        if let Some(Entry { file, shadowed }) = &self.source {
            digest
                .text("scope", &file.scope.to_string())
                .text("dialect", &file.dialect.to_string())
                .text("path", &file.path)
                .text("content", file.digest.as_ref().map_or("", Digest::as_str))
                .list("shadowed", shadowed.iter().map(String::as_str));
        }
        digest.finish()
    }
}

const fn match_name(layer: &Layer) -> &'static str {
    match layer.mode {
        tool_policy::MatchMode::Glob => "glob",
        tool_policy::MatchMode::GlobIgnoreCase => "glob_ignore_case",
        tool_policy::MatchMode::Literal => "literal",
    }
}
