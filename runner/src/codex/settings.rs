//! Start parameters of a Codex thread for a policy, as pure data.

use std::path::Path;

use serde_json::{Map, Value, json};
use tool_policy::{NativeTools, Policy};
use troupe_proto::{common::v1::Sandbox, supervisor::v1::ToolDescription};

use crate::{
    confinement::{Confinement, Means},
    hook,
    programs::AgentProgram,
    project,
    tool_line::WorkspaceTool,
    tools::schema,
};

/// The name under which Codex lists the supervisor's tools.
pub(super) const NAMESPACE: &str = "troupe";
/// The name of Codex's permission profile for PLANNING mode.
const PLANNING: &str = "troupe-planning";
/// The efforts that Codex accepts. For other efforts the model's default applies.
const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// Returns Codex's name of the sandbox. The sandbox confines commands and patches with mechanisms of the operating
/// system. Commands have no network if the thread may not write.
pub(super) const fn sandbox(sandbox: Sandbox) -> &'static str {
    match sandbox {
        Sandbox::ReadOnly | Sandbox::Unspecified => "read-only",
        Sandbox::WorkspaceWrite => "workspace-write",
        Sandbox::FullAccess => "danger-full-access",
    }
}

/// Returns the effort to request. `None`: the model's default applies.
pub(super) fn effort(effort: &str) -> Option<&str> {
    EFFORTS.contains(&effort).then_some(effort)
}

/// Returns the runner's tools for reading that a thread is offered if its policy denies the shell. With a shell, Codex
/// reads files by commands.
pub(super) fn reading_tools(policy: &Policy) -> Vec<ToolDescription> {
    if allows(policy, "exec_command") {
        return Vec::new();
    }
    let may = |tool: &WorkspaceTool| policy.decide_native(&NativeTools::PROCESS, tool.name()).is_allowed();
    let tools = [WorkspaceTool::ReadFile, WorkspaceTool::ListFiles]
        .into_iter()
        .filter(may);
    tools.map(describe_tool).collect()
}

fn describe_tool(tool: WorkspaceTool) -> ToolDescription {
    let (description, path, required) = match tool {
        WorkspaceTool::ReadFile => ("Reads a file of the workspace.", "The file's path.", json!(["path"])),
        _ => (
            "Lists a directory of the workspace.",
            "The directory's path. Default: the workspace.",
            json!([]),
        ),
    };
    let schema = json!({
        "type": "object",
        "properties": {"path": {"type": "string", "description": path}},
        "required": required,
        "additionalProperties": false,
    });
    ToolDescription {
        name: tool.name().to_owned(),
        description: description.to_owned(),
        input_schema_json: schema.to_string(),
    }
}

/// Returns whether Codex needs a model catalog without patches. No other setting prevents Codex from offering patches.
pub(super) fn hides_patches(policy: &Policy, access: Sandbox) -> bool {
    access == Sandbox::ReadOnly || !allows(policy, "apply_patch")
}

/// Returns the settings of a thread: the operator's, overridden by the settings that its policy needs. Denied tools are
/// not offered. Codex's own agents are never offered, so that no agent exists outside of the tree of threads.
pub(super) fn config(program: &AgentProgram, policy: &Policy, access: Sandbox, hook: &str) -> Map<String, Value> {
    let mut config = program.settings.clone();
    let has_network = access != Sandbox::ReadOnly;
    if !(has_network && allows(policy, "web_search")) {
        config.insert("web_search".to_owned(), json!("disabled"));
    }
    config.insert("agents".to_owned(), json!({"enabled": false}));
    merge(
        &mut config,
        "features",
        json!({
            // If enabled, Codex would wait for a network connection without a time limit.
            "unbounded_connection_retries": false,
            "shell_tool": allows(policy, "exec_command"),
            "view_image": allows(policy, "view_image"),
            "goals": false,
            "sleep_tool": false,
        }),
    );
    merge(
        &mut config,
        "tools",
        json!({
            "update_plan": {"enabled": allows(policy, "update_plan")},
            // No user is present to answer.
            "experimental_request_user_input": {"enabled": false},
        }),
    );
    // Credentials are only for Codex, not for the commands that it runs.
    let secret: Vec<&String> = program.inherit.iter().chain(program.environment.keys()).collect();
    merge(
        &mut config,
        "shell_environment_policy",
        json!({"inherit": "all", "ignore_default_excludes": false, "exclude": secret}),
    );
    config.insert("allow_login_shell".to_owned(), false.into());
    // `/tmp` may contain the state directories of other threads.
    merge(
        &mut config,
        "sandbox_workspace_write",
        json!({"exclude_slash_tmp": true}),
    );
    config.insert(
        "hooks".to_owned(),
        json!({"PreToolUse": [{
            "matcher": ".*",
            "hooks": [{"type": "command", "command": hook, "timeout": hook::LIMIT.as_secs()}],
        }]}),
    );
    config
}

/// The setting that keeps the login with a key in Codex's memory only.
pub(super) const UNSTORED_LOGIN: &str = "cli_auth_credentials_store=\"ephemeral\"";
/// The variable in which other programs expect the base URL of OpenAI's API. Codex itself has only a setting for this
/// URL.
pub(super) const BASE_URL: &str = "OPENAI_BASE_URL";

/// Applies the base URL of the environment to requests with a key of the environment. A login or an operator's provider
/// has its own address.
pub(super) fn use_base_url(config: &mut Map<String, Value>, program: &AgentProgram, base_url: Option<&str>) {
    let has_own = program.login.is_some() || program.provider.is_some() || config.contains_key("model_provider");
    if let Some(base_url) = base_url.filter(|url| !url.is_empty() && !has_own) {
        config
            .entry("openai_base_url".to_owned())
            .or_insert_with(|| base_url.into());
    }
}

/// Lets commands write to the paths that Codex's confinement permits: the directories of git that a commit needs, which
/// Codex's own sandbox would protect completely, and the private `/tmp`.
pub(super) fn widen(config: &mut Map<String, Value>, confinement: &Confinement) {
    if confinement.means() != Means::Bubblewrap {
        return;
    }
    let roots: Vec<_> = confinement.git.iter().map(|path| path.to_string_lossy()).collect();
    let own = json!({"writable_roots": roots, "exclude_slash_tmp": false});
    merge(config, "sandbox_workspace_write", own);
}

/// Returns the sandbox policy of a program that Landlock confines. Codex's own sandbox would need namespaces, so this
/// policy only restricts the network of commands.
pub(super) fn external_sandbox(config: &Map<String, Value>, access: Sandbox) -> Option<Value> {
    let network = match access {
        Sandbox::FullAccess => return None,
        Sandbox::WorkspaceWrite => config
            .get("sandbox_workspace_write")
            .is_some_and(|settings| settings["network_access"] == true),
        Sandbox::ReadOnly | Sandbox::Unspecified => false,
    };
    let network = if network { "enabled" } else { "restricted" };
    Some(json!({"type": "externalSandbox", "networkAccess": network}))
}

/// Lets commands and patches write in the docs directory only. These permissions replace Codex's sandbox setting.
pub(super) fn permit_docs(config: &mut Map<String, Value>, docs: &Path) {
    config.remove("sandbox_workspace_write");
    config.insert("default_permissions".to_owned(), PLANNING.into());
    let files = json!({":root": "read", docs.to_string_lossy(): "write"});
    merge(config, "permissions", json!({PLANNING: {"filesystem": files}}));
}

/// Returns the setting that makes Codex ignore the settings, hooks and rules of a project. Without it, Codex trusts
/// each project in which it may write.
pub(super) fn distrust(directory: &Path) -> String {
    let untrusted = project::levels(directory)
        .into_iter()
        .map(|level| format!("{}={{trust_level=\"untrusted\"}}", json!(level.to_string_lossy())));
    format!("projects={{{}}}", untrusted.collect::<Vec<_>>().join(","))
}

/// Redirects the thread's provider to another address, if the provider is in the operator's settings. Returns whether
/// the provider was redirected.
pub(super) fn redirect(config: &mut Map<String, Value>, provider: Option<&str>, endpoint: &str) -> bool {
    let provider = provider.or_else(|| config.get("model_provider")?.as_str());
    let Some(provider) = provider.map(str::to_owned) else {
        return false;
    };
    let fields = config
        .get_mut("model_providers")
        .and_then(|providers| providers.get_mut(&provider)?.as_object_mut());
    match fields {
        Some(fields) => {
            fields.insert("base_url".to_owned(), endpoint.into());
            true
        }
        None => false,
    }
}

/// Returns the settings with an entry that trusts the hook. Without this entry, Codex silently ignores the hook.
pub(super) fn with_trusted_hook(mut config: Map<String, Value>, key: &str, hash: &str) -> Map<String, Value> {
    merge(
        &mut config,
        "hooks",
        json!({"state": {key: {"enabled": true, "trusted_hash": hash}}}),
    );
    config
}

/// Returns the supervisor's tools in Codex's format.
pub(super) fn tools(offered: &[ToolDescription]) -> Value {
    if offered.is_empty() {
        return json!([]);
    }
    let tools: Vec<Value> = offered
        .iter()
        .map(|tool| {
            json!({
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "inputSchema": schema(tool),
            })
        })
        .collect();
    json!([{
        "type": "namespace",
        "name": NAMESPACE,
        "description": "The other agents of your session, and files.",
        "tools": tools,
    }])
}

/// Returns a catalog of models without the patch tool.
pub(super) fn without_patches(mut catalog: Value) -> Value {
    let models = catalog.get_mut("models").and_then(Value::as_array_mut);
    for model in models.into_iter().flatten() {
        model["apply_patch_tool_type"] = Value::Null;
        model["experimental_supported_tools"] = json!([]);
    }
    catalog
}

fn allows(policy: &Policy, tool: &str) -> bool {
    policy.decide_native(&NativeTools::CODEX, tool).is_allowed()
}

/// Merges the fields of an object into a setting and replaces existing fields.
fn merge(config: &mut Map<String, Value>, key: &str, over: Value) {
    let below = config.entry(key).or_insert_with(|| json!({}));
    match (below, over) {
        (Value::Object(below), Value::Object(over)) => below.extend(over),
        (below, over) => *below = over,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::policy::of_lists;

    #[test]
    fn denied_tool_is_not_offered() {
        let settings = json!({"features": {"mine": true, "goals": true}, "model_providers": {"p": {}}, "agents": 1});
        let program = AgentProgram {
            settings: settings.as_object().unwrap().clone(),
            ..AgentProgram::codex()
        };
        let denied = config(
            &program,
            &of_lists(&[], &["exec_*", "view_image", "web_search"]),
            Sandbox::WorkspaceWrite,
            "h",
        );
        assert_eq!(denied["features"]["shell_tool"], false);
        assert_eq!(denied["features"]["view_image"], false);
        assert_eq!(
            (&denied["features"]["mine"], &denied["features"]["goals"]),
            (&json!(true), &json!(false))
        );
        assert_eq!(denied["web_search"], "disabled");
        assert_eq!(
            denied["agents"],
            json!({"enabled": false}),
            "the operator's setting is overridden"
        );
        assert_eq!(denied["model_providers"], json!({"p": {}}));

        let excluded = denied["shell_environment_policy"]["exclude"].as_array().unwrap();
        assert!(excluded.contains(&json!("OPENAI_API_KEY")));

        let open = config(&program, &of_lists(&[], &[]), Sandbox::WorkspaceWrite, "h");
        assert_eq!(open["features"]["shell_tool"], true);
        assert!(!open.contains_key("web_search"));
        let read_only = config(&program, &of_lists(&[], &[]), Sandbox::ReadOnly, "h");
        assert_eq!(read_only["web_search"], "disabled", "no network for tools");
    }

    #[test]
    fn reading_tools_replace_denied_shell() {
        let names =
            |policy: &Policy| -> Vec<String> { reading_tools(policy).into_iter().map(|tool| tool.name).collect() };
        assert!(names(&of_lists(&[], &[])).is_empty(), "Codex reads with its shell");
        assert_eq!(names(&of_lists(&[], &["exec_command"])), ["read_file", "list_files"]);
        assert_eq!(
            names(&of_lists(&[], &["exec_command", "list_dir", "list_files"])),
            ["read_file"]
        );
        assert!(names(&of_lists(&[], &["*"])).is_empty());
    }

    #[test]
    fn patch_tool_is_hidden_without_write_permission() {
        assert!(hides_patches(&of_lists(&[], &["apply_patch"]), Sandbox::FullAccess));
        assert!(
            hides_patches(&of_lists(&[], &["Edit"]), Sandbox::FullAccess) || !of_lists(&[], &["Edit"]).allows("Edit")
        );
        assert!(hides_patches(&of_lists(&[], &[]), Sandbox::ReadOnly));
        assert!(!hides_patches(&of_lists(&[], &[]), Sandbox::WorkspaceWrite));
        let catalog = without_patches(json!({"models": [{"slug": "m", "apply_patch_tool_type": "freeform"}]}));
        assert_eq!(catalog["models"][0]["apply_patch_tool_type"], Value::Null);
        assert_eq!(catalog["models"][0]["slug"], "m");
    }

    #[test]
    fn operator_provider_sets_base_url() {
        let settings = json!({"model_provider": "p", "model_providers": {"p": {"base_url": "a", "env_key": "K"}}});
        for (provider, is_redirected) in [(None, true), (Some("p"), true), (Some("openai"), false)] {
            let mut config = settings.as_object().unwrap().clone();
            assert_eq!(redirect(&mut config, provider, "b"), is_redirected, "{provider:?}");
            let url = if is_redirected { "b" } else { "a" };
            assert_eq!(config["model_providers"]["p"], json!({"base_url": url, "env_key": "K"}));
        }
        assert!(!redirect(&mut Map::new(), None, "b"));
    }

    #[test]
    fn base_url_variable_applies_to_api_key() {
        let with = |program: &AgentProgram| {
            let mut config = program.settings.clone();
            use_base_url(&mut config, program, Some("http://proxy/v1"));
            config.get("openai_base_url").cloned()
        };
        let by_key = AgentProgram::codex();
        assert_eq!(with(&by_key), Some(json!("http://proxy/v1")));
        let by_login = AgentProgram {
            login: Some("/home/me/.codex/auth.json".into()),
            ..AgentProgram::codex()
        };
        assert_eq!(with(&by_login), None, "a login is only valid for its own host");
        let by_provider = AgentProgram {
            provider: Some("mine".to_owned()),
            ..AgentProgram::codex()
        };
        assert_eq!(with(&by_provider), None);
    }

    #[test]
    fn hook_config_includes_trusted_hash() {
        let config = with_trusted_hook(
            config(&AgentProgram::codex(), &of_lists(&[], &[]), Sandbox::ReadOnly, "h"),
            "k",
            "sha256:1",
        );
        assert_eq!(config["hooks"]["PreToolUse"][0]["hooks"][0]["command"], "h");
        assert_eq!(config["hooks"]["state"]["k"]["trusted_hash"], "sha256:1");
    }

    #[test]
    fn tool_with_invalid_schema_accepts_any_object() {
        let tool = |schema: &str| ToolDescription {
            name: "wait".to_owned(),
            description: "d".to_owned(),
            input_schema_json: schema.to_owned(),
        };
        let shown = tools(&[tool(r#"{"type":"object","properties":{}}"#), tool("{")]);
        assert_eq!(shown[0]["tools"][0]["inputSchema"]["properties"], json!({}));
        assert_eq!(shown[0]["tools"][1]["inputSchema"], json!({"type": "object"}));
        assert_eq!(tools(&[]), json!([]));
    }
}
