//! The registry's ResolveSpawn response, as used by a spawn.

use std::sync::Arc;

use supervisor_log::{
    codec::{
        enums::WireEnum as _,
        error::{DecodeError, malformed},
        origins_from_pb,
        parts::{content_of, source_from_pb},
        policy::layers_from_proto,
    },
    store::Content,
};
use tool_policy::Layer;
use troupe_proto::common::v1::{self as common, InstructionsMode};

use crate::domain::{
    content::truncate,
    event::{MAX_DESCRIPTION_BYTES, MAX_NOTE_BYTES, Role},
    settings::{EdgeManagement, Sandbox},
};

/// A resolved role: the data that all its threads share. Cheap to clone.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolution {
    /// Data that the role's threads share.
    pub role: Arc<Role>,
    /// The note for a spawn that sets no note.
    pub default_note: Arc<str>,
    /// Whether its threads read their parents' instructions: the role's text follows the parent's, or the role has no
    /// text.
    pub inherits_instructions: bool,
    /// The sandbox that restricts what its threads may change.
    pub sandbox: Sandbox,
    /// Which edges its threads may manage.
    pub edge_management: EdgeManagement,
    /// The capabilities that the role's graph template declares. Some of them determine `edge_management`.
    pub capabilities: Arc<[String]>,
    /// The layers that the role adds to its parent's grant.
    pub role_layers: Arc<[Layer]>,
    /// Permissions that its children may hold. If empty, the role's own permissions.
    pub grant_list: Vec<String>,
    /// Non-fatal warnings for the caller.
    pub warnings: Vec<String>,
    /// The complete resolution, stored with the event that refers to it. `None` if there is nothing to store.
    pub content: Option<Content>,
}

impl Resolution {
    /// Returns an unresolved role, for a root that its client executes.
    #[must_use]
    pub fn unasked(role: Role, sandbox: Sandbox) -> Self {
        Self {
            default_note: default_note(&role),
            role: Arc::new(role),
            inherits_instructions: false,
            sandbox,
            edge_management: EdgeManagement::None,
            capabilities: Arc::default(),
            role_layers: Arc::default(),
            grant_list: Vec::new(),
            warnings: Vec::new(),
            content: None,
        }
    }
}

impl TryFrom<common::ResolvedSpawn> for Resolution {
    type Error = DecodeError;

    /// Rejects a response with unknown values, because they might be restrictions.
    fn try_from(resolved: common::ResolvedSpawn) -> Result<Self, Self::Error> {
        if resolved.agent_type.is_empty() {
            return Err(malformed("a resolved role without a name"));
        }
        let (reference, content) = content_of(&resolved);
        let inherits_instructions = match resolved.instructions_mode() {
            InstructionsMode::Append => true,
            InstructionsMode::Blocks => resolved.source.is_none(),
            InstructionsMode::Replace | InstructionsMode::Unspecified => false,
        };
        let role = Role {
            agent_type: resolved.agent_type,
            agent_name: resolved.agent_name,
            agent_description: truncate(&resolved.agent_description, MAX_DESCRIPTION_BYTES).to_owned(),
            model: resolved.model,
            reasoning_effort: resolved.reasoning_effort,
            provider: resolved.provider,
            origins: origins_from_pb(resolved.origins)?,
            spawn_list: resolved.spawn_list,
            source: resolved.source.map(source_from_pb).transpose()?,
            resolved: Some(reference),
        };
        Ok(Self {
            default_note: default_note(&role),
            role: Arc::new(role),
            inherits_instructions,
            sandbox: Sandbox::from_number(resolved.sandbox)?,
            // A template without a declaration may not manage edges.
            edge_management: EdgeManagement::given(resolved.edge_management)?.unwrap_or_default(),
            capabilities: resolved.capabilities.into(),
            role_layers: layers_from_proto(resolved.tool_policy.unwrap_or_default())?.into(),
            grant_list: resolved.grant_list,
            warnings: resolved.warnings,
            content: Some(content),
        })
    }
}

fn default_note(role: &Role) -> Arc<str> {
    let mut note = format!("agent_type={}", role.agent_type);
    for (field, value) in [
        ("agent_name", &role.agent_name),
        ("agent_description", &role.agent_description),
    ] {
        if !value.is_empty() {
            note.push_str("; ");
            note.push_str(field);
            note.push('=');
            note.push_str(value);
        }
    }
    truncate(&note, MAX_NOTE_BYTES).into()
}
