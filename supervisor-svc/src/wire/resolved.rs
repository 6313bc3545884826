//! What the registry answers to ResolveSpawn, as a spawn needs it.

use std::collections::BTreeMap;

use tool_policy::Layer;
use troupe_proto::common::v1 as common;

use super::{
    enums::WireEnum as _,
    error::{DecodeError, malformed},
    parts::source_from_pb,
    policy::layers_from_proto,
    spawned::origins_from_pb,
};
use crate::domain::{
    event::{TemplateSource, ValueOrigin},
    settings::{EdgeManagement, Sandbox},
};

/// A resolved role: what [`Spawned`](crate::domain::event::Spawned) takes over, and what decides the rest.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolution {
    /// The role.
    pub agent_type: String,
    /// The persona; empty: the default prompt.
    pub agent_name: String,
    /// The role's one-line description.
    pub agent_description: String,
    /// The model; empty: the runner's default.
    pub model: String,
    /// The effort; empty: the program's default.
    pub reasoning_effort: String,
    /// The provider; empty: the runner's default.
    pub provider: String,
    /// What decided model, effort, provider and sandbox.
    pub origins: BTreeMap<String, ValueOrigin>,
    /// What it may change.
    pub sandbox: Sandbox,
    /// The agent types that it may spawn; empty: any.
    pub spawn_list: Vec<String>,
    /// Which edges it may manage.
    pub edge_management: EdgeManagement,
    /// What its graph template declares that it is for; some of it decides `edge_management`.
    pub capabilities: Vec<String>,
    /// The template; `None` for `default`.
    pub source: Option<TemplateSource>,
    /// The layers that the role adds to its parent's grant.
    pub role_layers: Vec<Layer>,
    /// What its children may hold; empty: what it may use itself.
    pub grant_list: Vec<String>,
    /// What the caller should know but that stops nothing.
    pub warnings: Vec<String>,
    /// What is sent to the agent before its task.
    pub blocks: Vec<common::PromptBlock>,
}

impl TryFrom<&common::ResolvedSpawn> for Resolution {
    type Error = DecodeError;

    /// Refuses what it cannot understand: it might restrict.
    fn try_from(resolved: &common::ResolvedSpawn) -> Result<Self, Self::Error> {
        if resolved.agent_type.is_empty() {
            return Err(malformed("a resolved role without a name"));
        }
        Ok(Self {
            agent_type: resolved.agent_type.clone(),
            agent_name: resolved.agent_name.clone(),
            agent_description: resolved.agent_description.clone(),
            model: resolved.model.clone(),
            reasoning_effort: resolved.reasoning_effort.clone(),
            provider: resolved.provider.clone(),
            origins: origins_from_pb(resolved.origins.clone())?,
            sandbox: Sandbox::from_number(resolved.sandbox)?,
            spawn_list: resolved.spawn_list.clone(),
            // A template that declares nothing may manage nothing.
            edge_management: EdgeManagement::given(resolved.edge_management)?.unwrap_or_default(),
            capabilities: resolved.capabilities.clone(),
            source: resolved.source.clone().map(source_from_pb).transpose()?,
            role_layers: layers_from_proto(resolved.tool_policy.clone().unwrap_or_default())?,
            grant_list: resolved.grant_list.clone(),
            warnings: resolved.warnings.clone(),
            blocks: resolved.blocks.clone(),
        })
    }
}
