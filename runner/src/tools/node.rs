//! The arguments of `spawn_node`, in the format of graph templates. Settings that reduce a node's permissions are
//! applied or rejected, never ignored. Settings that extend a node's permissions have no effect, because a caller
//! cannot grant permissions that it does not have.

use serde::Deserialize;
use serde_json::{Map, Value};
use troupe_proto::{
    common::v1::EdgeManagement,
    supervisor::v1::{InputItem, SpawnAgentRequest, ToolCeiling, input_item::Item},
};

use super::ToolFailure;

/// The task of a node without instructions.
const NO_INSTRUCTIONS: &str = "Spawned task";
/// The tools that `runCommands: false` removes.
const COMMAND_TOOLS: [&str; 2] = ["exec_command", "write_stdin"];
/// The tools that `writeCode: false` and `writeDocs: false` remove.
const WRITE_TOOLS: [&str; 3] = ["apply_patch", "write_file", "delete_file"];

/// The arguments. The argument `session` is ignored: a thread always keeps its conversation in its program.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SpawnNode {
    label: String,
    alias: String,
    role_template: String,
    /// An older name of `roleTemplate`.
    role: String,
    instructions: String,
    input: Map<String, Value>,
    /// The provider. Empty: the caller's provider.
    provider: String,
    capabilities: Capabilities,
    permissions: Permissions,
    custom_system_prompt: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Capabilities {
    edge_management: String,
    write_code: Option<bool>,
    write_docs: Option<bool>,
    run_commands: Option<bool>,
    delegate_only: Option<bool>,
}

/// The permissions. `agentManagementRequiresApproval` is omitted: it is a setting of the session.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Permissions {
    cli_permissions_mode: String,
}

impl SpawnNode {
    pub(super) fn into_request(self, request_id: String) -> Result<SpawnAgentRequest, ToolFailure> {
        let role_template = [&self.role_template, &self.role]
            .into_iter()
            .map(|name| name.trim())
            .find(|name| !name.is_empty());
        let label = self.label.trim();
        let Some(role_template) = role_template.filter(|_| !label.is_empty()) else {
            let text = "spawn_node requires label, roleTemplate (or role), and provider";
            return Err(ToolFailure::bad_arguments(text));
        };
        self.permissions.check()?;
        Ok(SpawnAgentRequest {
            request_id,
            items: self.items(),
            role_template: role_template.to_owned(),
            label: label.to_owned(),
            alias: self.alias.trim().to_owned(),
            edge_management: self.capabilities.edge_management()?.into(),
            permissions: self.capabilities.ceiling()?,
            provider: self.provider,
            custom_system_prompt: self.custom_system_prompt.unwrap_or_default(),
            ..Default::default()
        })
    }

    fn items(&self) -> Vec<InputItem> {
        let instructions = if self.instructions.trim().is_empty() {
            NO_INSTRUCTIONS.to_owned()
        } else {
            self.instructions.clone()
        };
        let input = (!self.input.is_empty()).then(|| Value::from(self.input.clone()).to_string());
        [Some(instructions), input]
            .into_iter()
            .flatten()
            .map(|text| InputItem {
                item: Some(Item::Text(text)),
            })
            .collect()
    }
}

impl Capabilities {
    fn edge_management(&self) -> Result<EdgeManagement, ToolFailure> {
        match self.edge_management.as_str() {
            "" => Ok(EdgeManagement::Unspecified),
            "none" => Ok(EdgeManagement::None),
            "self" => Ok(EdgeManagement::Self_),
            "all" => Ok(EdgeManagement::All),
            other => Err(ToolFailure::bad_arguments(format!(
                "unsupported edgeManagement {other:?}; expected one of: none, self, all"
            ))),
        }
    }

    /// Returns the tools that the settings remove.
    fn ceiling(&self) -> Result<Option<ToolCeiling>, ToolFailure> {
        let denied = |capability: Option<bool>| capability == Some(false);
        let delegate_only = self.delegate_only == Some(true);
        if denied(self.write_code) != denied(self.write_docs) && !delegate_only {
            let text = "capabilities.writeCode and capabilities.writeDocs can only be disabled together";
            return Err(ToolFailure::bad_arguments(text));
        }
        let mut deny_list = Vec::new();
        if delegate_only || denied(self.run_commands) {
            deny_list.extend(COMMAND_TOOLS.map(str::to_owned));
        }
        if delegate_only || denied(self.write_code) {
            deny_list.extend(WRITE_TOOLS.map(str::to_owned));
        }
        Ok((!deny_list.is_empty()).then_some(ToolCeiling {
            allow_list: Vec::new(),
            deny_list,
        }))
    }
}

impl Permissions {
    fn check(&self) -> Result<(), ToolFailure> {
        match self.cli_permissions_mode.as_str() {
            "" | "skip" => Ok(()),
            other => Err(ToolFailure::bad_arguments(format!(
                "unsupported cliPermissionsMode {other:?}; expected: skip"
            ))),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(args: Value) -> Result<SpawnAgentRequest, Value> {
        let node: SpawnNode = serde_json::from_value(args).unwrap();
        node.into_request("r".to_owned())
            .map_err(|failure| failure.to_json()["error"].clone())
    }

    fn node(more: Value) -> Result<SpawnAgentRequest, Value> {
        let mut args = json!({"label": "Docs Agent", "roleTemplate": "planner"});
        for (key, value) in more.as_object().unwrap() {
            args[key] = value.clone();
        }
        request(args)
    }

    fn texts(request: &SpawnAgentRequest) -> Vec<String> {
        request
            .items
            .iter()
            .filter_map(|item| match &item.item {
                Some(Item::Text(text)) => Some(text.clone()),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn spawn_node_arguments_are_converted() {
        let request = node(json!({
            "alias": " docs-agent ", "instructions": "Summarize docs/.", "input": {"depth": 2}, "provider": "claude",
            "capabilities": {"edgeManagement": "self", "runCommands": true}, "session": {"resume": true},
            "customSystemPrompt": null,
        }))
        .unwrap();
        assert_eq!(request.request_id, "r");
        assert_eq!(
            (request.label.as_str(), request.alias.as_str()),
            ("Docs Agent", "docs-agent")
        );
        assert_eq!(
            (request.role_template.as_str(), request.provider.as_str()),
            ("planner", "claude")
        );
        assert_eq!(texts(&request), ["Summarize docs/.", r#"{"depth":2}"#]);
        assert_eq!(request.edge_management(), EdgeManagement::Self_);
        assert_eq!((request.message, request.permissions), (None, None));
    }

    #[test]
    fn node_without_instructions_has_default_task() {
        assert_eq!(texts(&node(json!({"instructions": " "})).unwrap()), ["Spawned task"]);
    }

    #[test]
    fn node_without_label_or_template_is_rejected() {
        let expected = json!("spawn_node requires label, roleTemplate (or role), and provider");
        for args in [
            json!({}),
            json!({"label": "Docs"}),
            json!({"label": " ", "role": "planner"}),
            json!({"label": "Docs", "roleTemplate": " "}),
        ] {
            assert_eq!(request(args), Err(expected.clone()));
        }
        let legacy = request(json!({"label": "Docs", "role": "planner"})).unwrap();
        assert_eq!(legacy.role_template, "planner");
    }

    #[test]
    fn restricting_setting_is_applied_or_rejected() {
        let denied = |capabilities: Value| {
            let request = node(json!({"capabilities": capabilities}))?;
            Ok::<_, Value>(request.permissions.unwrap_or_default().deny_list)
        };
        assert_eq!(denied(json!({"runCommands": false})).unwrap(), COMMAND_TOOLS);
        assert_eq!(
            denied(json!({"writeCode": false, "writeDocs": false})).unwrap(),
            WRITE_TOOLS
        );
        assert_eq!(
            denied(json!({"delegateOnly": true, "writeCode": false})).unwrap().len(),
            5
        );
        assert!(
            denied(json!({"writeCode": true, "delegateOnly": false}))
                .unwrap()
                .is_empty()
        );
        assert!(denied(json!({"writeCode": false})).is_err());
        assert!(denied(json!({"edgeManagement": "ALL"})).is_err());
        assert!(node(json!({"permissions": {"cliPermissionsMode": "gated"}})).is_err());
        assert!(node(json!({"permissions": {"cliPermissionsMode": "skip"}})).is_ok());
    }
}
