//! Start parameters of a program of either profile for a policy, as pure data: its tools, its settings and its policy
//! in the program's own format.

use std::{collections::BTreeMap, os::unix::ffi::OsStrExt as _, path::Path};

use serde_json::{Map, Value, json};
use tool_policy::NativeTools;

use crate::{
    own_tools::{Effect, OwnTool, OwnTools, external, reads, writes},
    programs::Profile,
    text::percent_encoded,
};

/// The name under which programs list the supervisor's tools.
pub(super) const SERVER: &str = "troupe";
/// The name of the OpenCode agent that represents the thread's role.
pub(super) const AGENT: &str = "role";
/// OpenCode's package that passes options to the server unchanged.
const COMPATIBLE: &str = "@ai-sdk/openai-compatible";
/// The model options that a role may set with [`COMPATIBLE`].
const PASSED_OPTIONS: &[&str] = &[
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "max_tokens",
    "max_completion_tokens",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "seed",
    "stop",
];
/// The role parameters that Gemini CLI supports, with their names in its settings.
const GEMINI_PARAMETERS: &[(&str, &str)] = &[
    ("temperature", "temperature"),
    ("top_p", "topP"),
    ("top_k", "topK"),
    ("max_tokens", "maxOutputTokens"),
    ("max_output_tokens", "maxOutputTokens"),
    ("frequency_penalty", "frequencyPenalty"),
    ("presence_penalty", "presencePenalty"),
    ("seed", "seed"),
    ("stop", "stopSequences"),
];
/// The authentication type of Gemini CLI for an API key.
const KEY: &str = "gemini-api-key";
/// The priority of Gemini CLI's deny rules.
const BELOW: u32 = 100;
/// The priority of Gemini CLI's allow rules.
const ABOVE: u32 = 200;

/// The tools that a thread of OpenCode may be offered. OpenCode's own agents are not offered, so that no agent exists
/// outside of the tree of threads. Its skills are texts of the project.
const OPENCODE: &[OwnTool] = &[
    reads("read"),
    reads("grep"),
    reads("glob"),
    reads("list"),
    reads("todowrite"),
    external("bash"),
    // OpenCode has one permission for all of its writing tools.
    writes("edit", &["write", "patch", "multiedit", "apply_patch"]),
    external("webfetch"),
    external("websearch"),
];

/// The tool by which Gemini CLI runs commands.
const SHELL: &str = "run_shell_command";

/// The tools that a thread of Gemini CLI may be offered.
const GEMINI: &[OwnTool] = &[
    reads("read_file"),
    reads("read_many_files"),
    reads("grep_search"),
    reads("glob"),
    reads("list_directory"),
    reads("write_todos"),
    external(SHELL),
    writes("replace", &[]),
    // This tool has the same effect as a patch, so the policy must allow both tools.
    writes("write_file", &["apply_patch"]),
    external("web_fetch"),
    external("google_web_search"),
];

impl Profile {
    /// Returns the name of the kind, by which the supervisor finds the names of the program's tools.
    pub(super) const fn kind(self) -> &'static str {
        self.native().kind()
    }

    /// Returns the names of the program's tools.
    pub(super) const fn native(self) -> NativeTools {
        match self {
            Self::OpenCode => NativeTools::OPENCODE,
            Self::Gemini => NativeTools::GEMINI,
        }
    }

    /// Returns the program's own tools that a thread may be offered.
    pub(super) const fn own_tools(self) -> OwnTools {
        match self {
            Self::OpenCode => OwnTools(self.native(), OPENCODE),
            Self::Gemini => OwnTools(self.native(), GEMINI),
        }
    }

    /// Returns the program's name for a tool of the supervisor.
    pub(super) fn name_of_supervisor_tool(self, tool: &str) -> String {
        match self {
            Self::OpenCode => format!("{SERVER}_{tool}"),
            Self::Gemini => format!("mcp_{SERVER}_{tool}"),
        }
    }

    /// Returns the supervisor's name of a tool that the program knows by `native`. `None`: it is not the supervisor's
    /// tool.
    pub(super) fn supervisor_tool(self, native: &str) -> Option<&str> {
        let rest = match self {
            Self::OpenCode => Some(native),
            Self::Gemini => native.strip_prefix("mcp_"),
        };
        rest?.strip_prefix(SERVER)?.strip_prefix('_')
    }

    /// Returns the program's display name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::OpenCode => "OpenCode",
            Self::Gemini => "Gemini CLI",
        }
    }

    /// Returns the method by which another process continues a session.
    pub(super) const fn resume_method(self) -> &'static str {
        match self {
            Self::OpenCode => "session/resume",
            Self::Gemini => "session/load",
        }
    }

    /// Returns whether a prompt that arrives while another one runs becomes part of the running prompt. Gemini CLI ends
    /// the running prompt instead.
    pub(super) const fn joins_prompts(self) -> bool {
        matches!(self, Self::OpenCode)
    }

    /// Returns whether a refused call ends the turn without telling the model.
    pub(super) const fn ends_on_refusal(self) -> bool {
        matches!(self, Self::OpenCode)
    }

    /// Returns the paths in the program's own directory that are removed at each start. An agent that may write there
    /// could give the next process settings or code that disable the restrictions of that process.
    pub(super) const fn removed_files(self) -> &'static [&'static str] {
        match self {
            Self::OpenCode => &[".config/opencode", ".opencode"],
            Self::Gemini => &[
                ".gemini/settings.json",
                ".gemini/policies",
                ".gemini/extensions",
                ".gemini/commands",
                ".gemini/agents",
                ".gemini/skills",
                ".gemini/hooks",
                ".gemini/GEMINI.md",
                ".gemini/.env",
                ".env",
            ],
        }
    }

    /// Returns the path of a person's login file in the program's own directory.
    pub(super) const fn login(self) -> &'static str {
        match self {
            Self::OpenCode => ".local/share/opencode/auth.json",
            Self::Gemini => ".gemini/oauth_creds.json",
        }
    }

    /// Returns variables that disable background features.
    pub(super) const fn quiet(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::OpenCode => &[
                ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
                ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
                ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
                ("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1"),
                // A project's opencode.json may contain servers and plugins.
                ("OPENCODE_DISABLE_PROJECT_CONFIG", "1"),
            ],
            Self::Gemini => &[
                // Otherwise, the program starts another process that receives no signals.
                ("GEMINI_CLI_NO_RELAUNCH", "true"),
                // If the program does not trust the folder, it starts no servers, not even the supervisor's. The files
                // that this trust would activate are hidden; see [`crate::project`].
                ("GEMINI_CLI_TRUST_WORKSPACE", "true"),
            ],
        }
    }
}

/// Returns every name under which the program may report a call of those tools.
pub(super) fn names(tools: &[OwnTool]) -> impl Iterator<Item = &'static str> {
    tools
        .iter()
        .flat_map(|own| std::iter::once(own.name).chain(own.alike.iter().copied()))
}

/// Returns OpenCode's configuration: the operator's, overridden by the settings that the policy needs. `ours` are the
/// supervisor's tools as OpenCode names them.
pub(super) fn opencode(
    operators: &Map<String, Value>,
    tools: &[OwnTool],
    ours: &[String],
    instructions: &str,
    model: Option<&str>,
) -> Value {
    let mut config = operators.clone();
    let mut set = |key: &str, value: Value| config.insert(key.to_owned(), value);
    set("share", json!("disabled"));
    set("autoupdate", json!(false));
    set("default_agent", json!(AGENT));
    if let Some(model) = model {
        set("model", model.into());
        // OpenCode uses this model for short tasks such as titles. The credentials may not permit another model.
        set("small_model", model.into());
    }
    // Only the role's permissions apply.
    config.remove("permission");
    let mut role = json!({
        "mode": "primary",
        "description": "The role of this thread.",
        "permission": permissions(tools, ours),
    });
    if !instructions.trim().is_empty() {
        role["prompt"] = instructions.into();
    }
    let agents = config.entry("agent").or_insert_with(|| json!({}));
    if !agents.is_object() {
        *agents = json!({});
    }
    agents[AGENT] = role;
    config.into()
}

/// Returns the role's permissions. The last matching rule applies, and keys are written in alphabetical order: `*`
/// comes before every letter.
fn permissions(tools: &[OwnTool], ours: &[String]) -> Value {
    let mut rules = Map::new();
    rules.insert("*".to_owned(), json!("deny"));
    // OpenCode asks for this permission when a tool uses a path outside of the directory. The request contains the id
    // of the call, so the runner knows the tool.
    rules.insert("external_directory".to_owned(), json!("ask"));
    for own in tools {
        rules.insert(own.name.to_owned(), json!("ask"));
    }
    // The supervisor decides about these tools when they are called.
    for name in ours {
        rules.insert(name.clone(), json!("allow"));
    }
    rules.into()
}

/// Returns the name of a model with its provider, as OpenCode writes it.
pub(super) fn opencode_model(name: &str, provider: Option<&str>) -> String {
    match provider {
        Some(provider) if !name.contains('/') => format!("{provider}/{name}"),
        _ => name.to_owned(),
    }
}

/// Returns the provider of a model, as OpenCode names it. `None`: OpenCode chooses the provider.
pub(super) fn opencode_provider<'a>(model: Option<&'a str>, provider: Option<&'a str>) -> Option<&'a str> {
    let named = model.and_then(|model| model.split_once('/'));
    named.map_or(provider, |(provider, _)| Some(provider))
}

/// The method of the notifications of [`USAGE_PLUGIN`].
pub(super) const USAGE_METHOD: &str = "_troupe/usage";

/// A plugin that makes OpenCode report the tokens and the cost of each step. By itself OpenCode reports only the last
/// model call of a turn. The plugin writes notifications to the stream of the protocol.
pub(super) const USAGE_PLUGIN: &str = r#"export const TroupeUsage = async () => ({
  event: async ({ event }) => {
    const part = event.type === "message.part.updated" ? event.properties.part : undefined
    if (part?.type !== "step-finish") return
    const params = { id: part.id, tokens: part.tokens, cost: part.cost }
    process.stdout.write(JSON.stringify({ jsonrpc: "2.0", method: "_troupe/usage", params }) + "\n")
  },
})
"#;

/// The installed packages in OpenCode's own directory, in npm's format.
pub(super) const OPENCODE_PACKAGES: &str = r#"{"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}}"#;

/// Makes OpenCode load a plugin, in addition to the plugins of the operator's settings.
pub(super) fn add_plugin(config: &mut Value, path: &Path) {
    let url = format!("file://{}", percent_encoded(path.as_os_str().as_bytes(), b"/-._~"));
    let plugins = &mut config["plugin"];
    match plugins.as_array_mut() {
        Some(plugins) => plugins.push(url.into()),
        None => *plugins = json!([url]),
    }
}

/// Adds the reasoning effort to OpenCode's variants of the model, and sets the parameters that OpenCode supports.
///
/// OpenCode's package for servers that are compatible with OpenAI's API sends unknown options to the server unchanged.
/// With other packages only OpenCode's own settings have an effect, and an option of the session sets the effort.
pub(super) fn tune(
    config: &mut Value,
    model: Option<&str>,
    effort: &str,
    parameters: &BTreeMap<String, String>,
) -> Tuned {
    let (provider, name) = model.and_then(|model| model.split_once('/')).unwrap_or_default();
    let package = &config["provider"][provider]["npm"];
    let passes_options = package == COMPATIBLE;
    let reasons = config["provider"][provider]["models"][name]["reasoning"] == true;
    let mut tuned = Tuned::default();
    let role = &mut config["agent"][AGENT];
    for (parameter, text) in parameters {
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        if passes_options && PASSED_OPTIONS.contains(&parameter.as_str()) {
            role["options"][parameter] = value;
        } else if ["temperature", "top_p"].contains(&parameter.as_str()) && value.is_number() {
            role[parameter] = value;
        } else {
            continue;
        }
        tuned.parameters.push(parameter.clone());
    }
    if passes_options && reasons && !effort.is_empty() {
        // The session offers each variant as an effort and always selects one of them.
        config["provider"][provider]["models"][name]["variants"][effort] = json!({"reasoningEffort": effort});
    }
    tuned
}

/// The role settings that a program's configuration applies.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tuned {
    /// Whether the configuration applies the effort.
    pub(super) effort: bool,
    /// The parameters that the configuration applies.
    pub(super) parameters: Vec<String>,
}

/// Configures Gemini CLI's model with the effort and the parameters of a role, as far as Gemini CLI supports them.
pub(super) fn tune_gemini(
    settings: &mut Value,
    model: Option<&str>,
    effort: &str,
    parameters: &BTreeMap<String, String>,
) -> Tuned {
    let mut tuned = Tuned::default();
    let mut generation = Map::new();
    for (parameter, text) in parameters {
        let known = GEMINI_PARAMETERS.iter().find(|(name, _)| name == parameter);
        if let (Some((_, name)), Ok(value)) = (known, serde_json::from_str::<Value>(text)) {
            generation.insert((*name).to_owned(), value);
            tuned.parameters.push(parameter.clone());
        }
    }
    if let Some(thinking) = model.and_then(|model| thinking(model, effort)) {
        generation.insert("thinkingConfig".to_owned(), thinking);
        tuned.effort = true;
    }
    if !generation.is_empty() {
        let config = json!({"generateContentConfig": generation});
        // Known models extend `chat-base`; a model that Gemini CLI does not know is matched by its name.
        let overrides = ["chat-base"].into_iter().chain(model);
        let overrides = overrides.map(|model| json!({"match": {"model": model}, "modelConfig": config}));
        if !settings["modelConfigs"].is_object() {
            settings["modelConfigs"] = json!({});
        }
        let place = &mut settings["modelConfigs"]["customOverrides"];
        let mut all = place.as_array().cloned().unwrap_or_default();
        all.extend(overrides);
        *place = all.into();
    }
    tuned
}

/// Returns the thinking configuration for an effort; `None` if the model does not support the effort. The budgets
/// follow Google's mapping of `reasoning_effort` for models without levels.
fn thinking(model: &str, effort: &str) -> Option<Value> {
    let levels: &[&str] = match () {
        () if model.starts_with("gemini-2.5") => {
            let budget = match effort {
                "none" if model.contains("flash") => 0,
                "minimal" | "low" => 1_024,
                "medium" => 8_192,
                "high" => 24_576,
                _ => return None,
            };
            return Some(json!({"thinkingBudget": budget}));
        }
        () if model.starts_with("gemini-3-pro") => &["low", "high"],
        () if model.starts_with("gemini-3") && model.contains("pro") => &["low", "medium", "high"],
        () if model.starts_with("gemini-3") => &["minimal", "low", "medium", "high"],
        () => &[],
    };
    levels
        .contains(&effort)
        .then(|| json!({"thinkingLevel": effort.to_ascii_uppercase()}))
}

/// Returns whether Gemini CLI uses an API key with these settings.
pub(super) fn has_gemini_key(settings: &Value) -> bool {
    settings["security"]["auth"]["selectedType"] == KEY
}

/// Returns Gemini CLI's settings: the operator's, overridden by settings that disable background features.
pub(super) fn gemini(operators: &Map<String, Value>, has_login: bool) -> Value {
    let mut settings = operators.clone();
    let way = if has_login { "oauth-personal" } else { KEY };
    settings
        .entry("security")
        .or_insert_with(|| json!({"auth": {"selectedType": way}}));
    for (section, key, value) in [
        ("privacy", "usageStatisticsEnabled", false),
        ("general", "disableAutoUpdate", true),
        // A project's .env file could redirect the program and its key to another provider.
        ("advanced", "ignoreLocalEnv", true),
    ] {
        let section = settings.entry(section).or_insert_with(|| json!({}));
        if let Value::Object(fields) = section {
            fields.insert(key.to_owned(), value.into());
        }
    }
    // By default Gemini CLI deletes old sessions at its start, and could not resume the thread's session.
    let general = settings.entry("general").or_insert_with(|| json!({}));
    if let Value::Object(fields) = general {
        fields.insert("sessionRetention".to_owned(), json!({"enabled": false}));
    }
    // The policy would deny every tool of these servers in any case.
    settings.remove("mcpServers");
    settings.into()
}

/// Returns Gemini CLI's policy. One rule denies every tool. Other rules allow single tools by their exact names. Gemini
/// CLI silently ignores an invalid file, so the policy contains only names that need no escaping. `None`: a name needs
/// escaping.
pub(super) fn policy(tools: &[OwnTool], ours: &[String]) -> Option<String> {
    let mut text = rule("*", "deny", BELOW);
    for own in tools {
        let decision = match own.effect {
            Effect::Reads => "allow",
            Effect::Writes | Effect::External => "ask_user",
        };
        text.push_str(&rule(own.name, decision, ABOVE));
    }
    for name in ours {
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return None;
        }
        // The supervisor decides about these tools when they are called.
        text.push_str(&rule(name, "allow", ABOVE));
    }
    Some(text)
}

fn rule(tool: &str, decision: &str, priority: u32) -> String {
    // A rule with a pattern applies to every command. Without a pattern, Gemini CLI runs commands that it considers
    // safe, such as `cat`, without asking.
    let pattern = if tool == SHELL { "argsPattern = \".\"\n" } else { "" };
    format!("[[rule]]\ntoolName = \"{tool}\"\n{pattern}decision = \"{decision}\"\npriority = {priority}\n\n")
}

/// Returns the servers of a session: only the supervisor's tools, with the token of the thread.
pub(super) fn servers(shim: &str, token: &str, supervisor_url: &str, authorities: Option<&str>) -> Value {
    let variables = [
        ("TROUPE_THREAD_TOKEN", Some(token)),
        ("TROUPE_SUPERVISOR_URL", Some(supervisor_url)),
        ("TROUPE_CA", authorities),
    ];
    let env: Vec<Value> = variables
        .into_iter()
        .filter_map(|(name, value)| Some(json!({"name": name, "value": value?})))
        .collect();
    json!([{"name": SERVER, "command": shim, "args": ["mcp"], "env": env}])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use troupe_proto::common::v1::Sandbox;

    use super::*;
    use crate::policy::of_lists;

    fn offered(profile: Profile, allow: &[&str], deny: &[&str], access: Sandbox) -> Vec<&'static str> {
        let tools = profile.own_tools().offered(&of_lists(allow, deny), access);
        tools.iter().map(|own| own.name).collect()
    }

    #[test]
    fn only_allowed_tools_are_offered() {
        use Profile::{Gemini, OpenCode};
        let write = Sandbox::WorkspaceWrite;
        for (profile, allow, deny, access, expected) in [
            (
                OpenCode,
                &["read_file", "grep_files"][..],
                &[][..],
                write,
                &["read", "grep"][..],
            ),
            (
                OpenCode,
                &["*"],
                &["exec_command", "web_search"],
                write,
                &["read", "grep", "glob", "list", "todowrite", "edit"],
            ),
            (OpenCode, &["read_file", "apply_patch"], &["write"], write, &["read"]),
            (
                OpenCode,
                &["*"],
                &[],
                Sandbox::ReadOnly,
                &["read", "grep", "glob", "list", "todowrite"],
            ),
            (OpenCode, &[], &["*"], write, &[]),
            (Gemini, &["read_file"], &[], write, &["read_file", "read_many_files"]),
            (Gemini, &["apply_patch"], &[], write, &["replace"]),
            (
                Gemini,
                &["write_file", "apply_patch"],
                &["replace"],
                write,
                &["write_file"],
            ),
            (Gemini, &["write_file"], &[], write, &[]),
            (Gemini, &["exec_command"], &[], Sandbox::ReadOnly, &[]),
        ] {
            assert_eq!(
                offered(profile, allow, deny, access),
                expected,
                "{profile:?} {allow:?} {deny:?}"
            );
        }
    }

    #[test]
    fn network_tools_withheld_from_reader_are_a_gap() {
        let everything = of_lists(&["*"], &[]);
        for (profile, expected) in [
            (Profile::OpenCode, ["bash", "webfetch", "websearch"]),
            (Profile::Gemini, ["run_shell_command", "web_fetch", "google_web_search"]),
        ] {
            let own = profile.own_tools();
            assert_eq!(own.withheld(&everything, Sandbox::ReadOnly), expected);
            assert!(own.withheld(&everything, Sandbox::WorkspaceWrite).is_empty());
            let reader = of_lists(&["read_file", "apply_patch"], &[]);
            assert!(own.withheld(&reader, Sandbox::ReadOnly).is_empty());
        }
    }

    #[test]
    fn default_deny_precedes_allow_rules() {
        let policy = of_lists(&["read_file", "wait"], &[]);
        let tools = Profile::OpenCode.own_tools().offered(&policy, Sandbox::ReadOnly);
        let operators = json!({"permission": {"bash": "allow"}, "agent": {"x": {}}, "provider": {"p": {}}});
        let config = opencode(
            operators.as_object().unwrap(),
            &tools,
            &["troupe_wait".to_owned()],
            "be",
            Some("p/m"),
        );
        assert_eq!(
            config["agent"][AGENT]["permission"].to_string(),
            r#"{"*":"deny","external_directory":"ask","read":"ask","troupe_wait":"allow"}"#
        );
        assert_eq!(
            (&config["default_agent"], &config["agent"][AGENT]["prompt"]),
            (&json!(AGENT), &json!("be"))
        );
        assert_eq!(
            (&config["model"], &config["small_model"]),
            (&json!("p/m"), &json!("p/m"))
        );
        assert!(config.get("permission").is_none() && config["provider"]["p"].is_object());
    }

    #[test]
    fn gemini_policy_names_each_tool_in_full() {
        let lists = of_lists(&["read_file", "exec_command"], &[]);
        let tools = Profile::Gemini.own_tools().offered(&lists, Sandbox::WorkspaceWrite);
        let text = policy(&tools, &["mcp_troupe_wait".to_owned()]).unwrap();
        assert!(text.starts_with("[[rule]]\ntoolName = \"*\"\ndecision = \"deny\"\npriority = 100\n"));
        for rule in [
            "toolName = \"read_file\"\ndecision = \"allow\"\npriority = 200",
            "toolName = \"run_shell_command\"\nargsPattern = \".\"\ndecision = \"ask_user\"\npriority = 200",
            "toolName = \"mcp_troupe_wait\"\ndecision = \"allow\"\npriority = 200",
        ] {
            assert!(text.contains(rule), "{text}");
        }
        assert_eq!(
            policy(&[], &["a\"b".to_owned()]),
            None,
            "names that need escaping are rejected"
        );
    }

    #[test]
    fn own_tool_names_convert_both_ways() {
        for profile in [Profile::OpenCode, Profile::Gemini] {
            let name = profile.name_of_supervisor_tool("spawn_agent");
            assert_eq!(profile.supervisor_tool(&name), Some("spawn_agent"));
            assert_eq!(profile.supervisor_tool("bash"), None);
            assert_eq!(profile.supervisor_tool("mcp_other_tool"), None);
        }
        assert_eq!(Profile::Gemini.name_of_supervisor_tool("wait"), "mcp_troupe_wait");
    }

    #[test]
    fn opencode_model_includes_provider() {
        assert_eq!(opencode_model("m", Some("p")), "p/m");
        assert_eq!(opencode_model("q/m", Some("p")), "q/m");
        assert_eq!(opencode_model("m", None), "m");
    }

    #[test]
    fn opencode_provider_comes_from_model() {
        assert_eq!(opencode_provider(Some("q/m"), Some("p")), Some("q"));
        assert_eq!(opencode_provider(None, Some("p")), Some("p"));
        assert_eq!(opencode_provider(Some("m"), None), None);
    }

    fn parameters(list: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = list.iter().map(|&(name, text)| (name.to_owned(), text.to_owned()));
        owned.collect()
    }

    #[test]
    fn opencode_applies_only_supported_parameters() {
        let set = parameters(&[
            ("temperature", "0.5"),
            ("top_p", "\"high\""),
            ("seed", "7"),
            ("tools", "1"),
        ]);
        let mut config = json!({"agent": {AGENT: {}}});
        let tuned = tune(&mut config, Some("openai/m"), "high", &set);
        assert_eq!(config["agent"][AGENT], json!({"temperature": 0.5}));
        assert_eq!(
            (tuned.effort, tuned.parameters),
            (false, vec!["temperature".to_owned()])
        );

        let mut config = json!({
            "agent": {AGENT: {}},
            "provider": {"p": {"npm": COMPATIBLE, "models": {"m": {"reasoning": true}, "plain": {}}}},
        });
        let mut plain = config.clone();
        tune(&mut plain, Some("p/plain"), "high", &BTreeMap::new());
        assert_eq!(plain, config);
        let tuned = tune(&mut config, Some("p/m"), "xhigh", &set);
        let variants = &config["provider"]["p"]["models"]["m"]["variants"];
        assert_eq!(variants, &json!({"xhigh": {"reasoningEffort": "xhigh"}}));
        let expected = json!({
            "options": {"temperature": 0.5, "top_p": "high", "seed": 7},
        });
        assert_eq!(config["agent"][AGENT], expected);
        assert_eq!(tuned.parameters.len(), 3, "tools is not a parameter");
    }

    #[test]
    fn gemini_thinking_depends_on_model() {
        for (model, effort, expected) in [
            ("gemini-2.5-flash", "none", Some(json!({"thinkingBudget": 0}))),
            ("gemini-2.5-pro", "none", None),
            ("gemini-2.5-pro", "high", Some(json!({"thinkingBudget": 24_576}))),
            (
                "gemini-3-flash-preview",
                "minimal",
                Some(json!({"thinkingLevel": "MINIMAL"})),
            ),
            ("gemini-3-pro-preview", "medium", None),
            (
                "gemini-3.1-pro-preview",
                "medium",
                Some(json!({"thinkingLevel": "MEDIUM"})),
            ),
            ("gemini-3.5-flash", "xhigh", None),
            ("gemma-4", "low", None),
            ("gemini-2.5-pro", "", None),
        ] {
            assert_eq!(thinking(model, effort), expected, "{model} {effort}");
        }
        let mut settings = json!({"modelConfigs": {"customOverrides": [1]}});
        let set = parameters(&[("temperature", "0.5"), ("top_k", "3"), ("tools", "1")]);
        let tuned = tune_gemini(&mut settings, Some("m"), "low", &set);
        assert_eq!((tuned.effort, tuned.parameters.len()), (false, 2));
        let overrides = &settings["modelConfigs"]["customOverrides"];
        assert_eq!(
            (&overrides[0], &overrides[1]["match"]["model"]),
            (&json!(1), &json!("chat-base"))
        );
        assert_eq!(
            overrides[2],
            json!({"match": {"model": "m"}, "modelConfig": {"generateContentConfig": {"temperature": 0.5, "topK": 3}}})
        );
        let mut settings = json!({});
        tune_gemini(&mut settings, None, "low", &BTreeMap::new());
        assert_eq!(settings, json!({}));
    }

    #[test]
    fn gemini_login_sets_authentication_unless_overridden() {
        let way = |settings: Value, has_login| {
            gemini(settings.as_object().unwrap(), has_login)["security"]["auth"]["selectedType"].clone()
        };
        assert_eq!(way(json!({}), false), "gemini-api-key");
        assert_eq!(way(json!({}), true), "oauth-personal");
        assert_eq!(
            way(json!({"security": {"auth": {"selectedType": "vertex-ai"}}}), false),
            "vertex-ai"
        );
        let quiet = gemini(&Map::new(), false);
        assert_eq!(quiet["privacy"]["usageStatisticsEnabled"], false);
        assert_eq!(quiet["advanced"]["ignoreLocalEnv"], true);
    }
}
