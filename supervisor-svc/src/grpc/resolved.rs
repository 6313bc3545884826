//! A role as the registry resolved it, on its way into a spawn: what of [`Spawned`] it decides, and what becomes of its rights.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message;
use tonic::{Code, Status};
use tool_policy::{Layer, Policy};
use troupe_proto::{common::v1 as common, fault::Fault, reason::Reason};

use super::check;
use crate::{
    domain::{
        content::{ContentRef, truncate},
        event::Spawned,
        settings::{Budget, ClosePolicy, EdgeManagement, Sandbox, WakePolicy},
        status::StatusKind,
    },
    session::digest,
    store::Content,
    wire::Resolution,
};

/// How much of a template's capabilities an error repeats.
const DECLARED_BYTES: usize = 1_024;

/// A role, resolved: what of [`Spawned`] it decides, and what becomes of its rights.
pub(super) struct Resolved {
    pub fields: Spawned,
    pub role_layers: Vec<Layer>,
    pub grant_list: Vec<String>,
    /// What a graph template declares.
    pub capabilities: Vec<String>,
    pub warnings: Vec<String>,
    /// The whole resolution, to be stored beside the event; taken by whoever records it.
    pub content: Option<Content>,
}

impl Resolved {
    pub fn new(answer: common::ResolvedSpawn) -> Result<Self, Status> {
        let resolution = Resolution::try_from(&answer).map_err(|error| {
            let text = format!("the registry's answer makes no sense ({error}); nothing was done, try again");
            Fault::new(Code::Unavailable, Reason::RegistryUnavailable, text)
        })?;
        let content = content_of(&answer);
        let fields = Spawned {
            agent_type: resolution.agent_type,
            agent_name: resolution.agent_name,
            agent_description: resolution.agent_description,
            model: resolution.model,
            reasoning_effort: resolution.reasoning_effort,
            provider: resolution.provider,
            origins: resolution.origins,
            sandbox: resolution.sandbox,
            spawn_list: resolution.spawn_list,
            edge_management: resolution.edge_management,
            source: resolution.source,
            resolved: Some(content.0),
            ..blank(resolution.sandbox)
        };
        Ok(Self {
            fields,
            role_layers: resolution.role_layers,
            grant_list: resolution.grant_list,
            capabilities: resolution.capabilities,
            warnings: resolution.warnings,
            content: Some(content.1),
        })
    }

    /// The `default` role without asking anybody: for a root that its client executes.
    pub fn default_role(sandbox: Sandbox) -> Self {
        Self {
            fields: Spawned {
                agent_type: String::from("default"),
                ..blank(sandbox)
            },
            role_layers: Vec::new(),
            grant_list: Vec::new(),
            capabilities: Vec::new(),
            warnings: Vec::new(),
            content: None,
        }
    }

    /// Which edges the template lets a thread manage that keeps only these of its capabilities; empty: all of them.
    pub fn edge_management(&self, kept: &[String]) -> Result<EdgeManagement, Status> {
        let declared = self.fields.edge_management;
        if kept.is_empty() {
            return Ok(declared);
        }
        if let Some(unknown) = kept.iter().find(|name| !self.capabilities.contains(name)) {
            let text = format!(
                "capability \"{unknown}\" is not declared by \"{}\"; it declares: {}",
                self.fields.agent_type,
                self.declared()
            );
            return Err(check::bad("capabilities", text));
        }
        Ok(declared.min(EdgeManagement::of_capabilities(kept)))
    }

    /// The capabilities for people, as many as a message may have.
    fn declared(&self) -> String {
        if self.capabilities.is_empty() {
            return String::from("none");
        }
        truncate(&self.capabilities.join(", "), DECLARED_BYTES).to_owned()
    }

    /// The note of a spawn that brings none.
    pub fn default_note(&self) -> String {
        let Spawned {
            agent_type,
            agent_name,
            agent_description,
            ..
        } = &self.fields;
        let mut note = format!("agent_type={agent_type}");
        if !agent_name.is_empty() {
            note.push_str("; agent_name=");
            note.push_str(agent_name);
        }
        if !agent_description.is_empty() {
            note.push_str("; agent_description=");
            note.push_str(agent_description);
        }
        note
    }

    pub fn replace_role_block(&mut self, text: &str) {
        let Some(mut stored) = self
            .content
            .as_ref()
            .and_then(|content| common::ResolvedSpawn::decode(content.bytes.clone()).ok())
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
                sha256: digest(text.as_bytes()).to_string(),
            },
        );
        let (reference, content) = content_of(&stored);
        self.fields.resolved = Some(reference);
        self.content = Some(content);
    }
}

/// A message as content without a preview.
pub(super) fn content_of(message: &impl Message) -> (ContentRef, Content) {
    let bytes = Bytes::from(message.encode_to_vec());
    let reference = ContentRef {
        digest: digest(&bytes),
        size: bytes.len() as u64,
        preview: String::new(),
    };
    let content = Content {
        digest: reference.digest,
        bytes,
    };
    (reference, content)
}

/// A spawn of which nothing is decided yet.
fn blank(sandbox: Sandbox) -> Spawned {
    Spawned {
        parent: None,
        depth: 0,
        first_status: StatusKind::PendingInit,
        client_owned: false,
        agent_type: String::new(),
        agent_name: String::new(),
        agent_description: String::new(),
        alias: String::new(),
        label: String::new(),
        note: String::new(),
        working_directory: String::new(),
        model: String::new(),
        reasoning_effort: String::new(),
        provider: String::new(),
        origins: BTreeMap::new(),
        sandbox,
        effective: Policy::unrestricted(),
        grant: Policy::unrestricted(),
        spawn_list: Vec::new(),
        edge_management: EdgeManagement::None,
        source: None,
        resolved: None,
        budget: Budget::default(),
        close_policy: ClosePolicy::default(),
        wake_policy: WakePolicy::default(),
        input: None,
    }
}
