//! A role as the registry resolved it, adapted to one spawn.

use std::sync::Arc;

use prost::Message as _;
use supervisor_log::codec::content_of;
use tool_policy::{Layer, MatchMode, locked_tools};
use troupe_proto::common::v1 as common;

use crate::{
    domain::{content::truncate, ids::Digest, rejection::Rejection, settings::EdgeManagement},
    registry_client::resolution::Resolution,
};

/// Maximum size of a template's capabilities in an error text, in bytes.
const DECLARED_BYTES: usize = 1_024;

impl Resolution {
    /// Returns the edges that the template permits a thread to manage if it keeps only the given capabilities. An empty
    /// list keeps all of them.
    pub fn edges_for(&self, remaining: &[String]) -> Result<EdgeManagement, Rejection> {
        let declared = self.edge_management;
        if remaining.is_empty() {
            return Ok(declared);
        }
        if let Some(unknown) = remaining.iter().find(|name| !self.capabilities.contains(name)) {
            let text = format!(
                "capability \"{unknown}\" is not declared by \"{}\"; it declares: {}",
                self.role.agent_type,
                self.declared()
            );
            return Err(Rejection::InvalidArgument {
                field: "capabilities",
                message: text,
            });
        }
        Ok(declared.min(EdgeManagement::of_capabilities(remaining)))
    }

    /// Returns the layers that the role adds for a thread that keeps only the given capabilities. An empty list keeps
    /// all of them.
    pub fn layers_for(&self, remaining: &[String]) -> Arc<[Layer]> {
        let deny: Vec<String> = locked_tools(remaining)
            .flat_map(|group| group.tools)
            .map(|tool| (*tool).to_owned())
            .collect();
        if remaining.is_empty() || deny.is_empty() || !self.role.is_graph() {
            return Arc::clone(&self.role_layers);
        }
        let narrowed = Layer {
            origin: format!("capabilities of the spawn of \"{}\"", self.role.agent_type),
            mode: MatchMode::Glob,
            allow: Vec::new(),
            deny,
        };
        self.role_layers.iter().cloned().chain([narrowed]).collect()
    }

    /// Formats the capabilities for an error text, up to its maximum size.
    fn declared(&self) -> String {
        if self.capabilities.is_empty() {
            return String::from("none");
        }
        truncate(&self.capabilities.join(", "), DECLARED_BYTES).to_owned()
    }

    /// Replaces the role block of the template by the given text.
    pub fn replace_role_block(&mut self, text: &str) {
        let content = self.content.as_ref();
        let Some(mut stored) = content.and_then(|content| common::ResolvedSpawn::decode(content.bytes.clone()).ok())
        else {
            return;
        };
        stored.blocks.retain(|block| block.kind() != common::BlockKind::Role);
        let after_system = stored
            .blocks
            .iter()
            .position(|block| block.kind() != common::BlockKind::System)
            .unwrap_or(stored.blocks.len());
        stored.blocks.insert(
            after_system,
            common::PromptBlock {
                kind: common::BlockKind::Role.into(),
                text: text.to_owned(),
                sha256: Digest::of(text.as_bytes()).to_string(),
            },
        );
        let (reference, content) = content_of(&stored);
        Arc::make_mut(&mut self.role).resolved = Some(reference);
        self.content = Some(content);
    }
}
