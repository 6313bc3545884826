//! Builder of a template from the keys of a foreign file. Keys without an equivalent are reported.

use std::collections::BTreeSet;

use serde_json::Value;
use tool_policy::MatchMode;

use crate::domain::{
    diagnostic::Finding,
    effort::Effort,
    extension,
    finding_kind::FindingKind,
    foreign::{
        ForeignFormat,
        fields::{Field, PROMPT},
        tools::{self, Allowed, SPAWNING},
    },
    keys::{self, Restrictions},
    malformed::{Located, Malformed},
    name::AgentType,
    template::{Template, ToolLists, non_blank},
};

/// Maximum length of a value in a report, in characters.
const SHOWN_CHARS: usize = 100;

/// The reason why a key has no equivalent.
type Why = &'static str;

const LOOSENS: Why = "a template cannot loosen what its parent allows";
const NEVER_TRUSTED: Why = "a template can never start programs";
const LIMITS: Why = "a spawn's budget sets these limits";
const NO_SETTING: Why = "Troupe has no such setting";
const UNKNOWN: Why = "unknown to this release";

/// Keys of any format that have no equivalent. None of them restricts what an agent may do.
const UNMAPPED_KEYS: &[(&str, Why)] = &[
    ("hooks", NEVER_TRUSTED),
    ("mcpServers", NEVER_TRUSTED),
    ("mcp_servers", NEVER_TRUSTED),
    ("mcp-servers", NEVER_TRUSTED),
    ("mcp", NEVER_TRUSTED),
    ("maxTurns", LIMITS),
    ("max_turns", LIMITS),
    ("timeout_mins", LIMITS),
    ("steps", LIMITS),
    ("maxSteps", LIMITS),
    ("color", NO_SETTING),
    ("skills", NO_SETTING),
    ("memory", NO_SETTING),
    ("background", NO_SETTING),
    ("isolation", NO_SETTING),
    ("initialPrompt", NO_SETTING),
    ("mode", NO_SETTING),
    ("hidden", NO_SETTING),
    ("disable", NO_SETTING),
    ("prompt", "the prompt is the text after the frontmatter"),
    ("display_name", NO_SETTING),
    ("kind", NO_SETTING),
    ("target", NO_SETTING),
    ("user-invocable", NO_SETTING),
    ("user-invokable", NO_SETTING),
    ("disable-model-invocation", NO_SETTING),
    ("infer", NO_SETTING),
    ("argument-hint", NO_SETTING),
    ("handoffs", NO_SETTING),
    ("metadata", NO_SETTING),
    ("nickname_candidates", NO_SETTING),
    ("model_reasoning_summary", NO_SETTING),
    ("model_verbosity", NO_SETTING),
];

/// The template built so far.
#[derive(Clone, Debug)]
pub(super) struct ImportDraft {
    format: ForeignFormat,
    template: Template,
    /// The allowed tool patterns. `None`: every tool is allowed.
    allow: Option<BTreeSet<String>>,
    deny: Vec<String>,
    /// The agents that may be spawned. `None`: any agent.
    spawn: Option<BTreeSet<String>>,
}

impl ImportDraft {
    pub(super) fn new(format: ForeignFormat, body: String) -> Self {
        // Copilot ignores the case of tool names.
        let mode = match format {
            ForeignFormat::Copilot => MatchMode::GlobIgnoreCase,
            ForeignFormat::ClaudeCode | ForeignFormat::OpenCode | ForeignFormat::Gemini | ForeignFormat::Codex => {
                MatchMode::Glob
            }
        };
        Self {
            format,
            template: Template {
                default_prompt: non_blank(Some(body)),
                ..Template::empty(mode)
            },
            allow: None,
            deny: Vec::new(),
            spawn: None,
        }
    }

    /// Maps a key to its Troupe equivalent, or reports that there is no equivalent.
    pub(super) fn map(&mut self, field: &Field, findings: &mut Vec<Finding>) -> Result<(), Located> {
        use ForeignFormat::{ClaudeCode, Codex, Copilot, Gemini, OpenCode};

        let why = match (self.format, field.key.as_str()) {
            (ClaudeCode | Gemini | Codex, "name") => None,
            (OpenCode | Copilot, "name") => Some("the file name is the agent's name"),
            (_, "description") => {
                self.template.description = non_blank(Some(field.text()?.to_owned()));
                None
            }
            (Codex, PROMPT) => {
                self.template.default_prompt = non_blank(Some(field.text()?.to_owned()));
                None
            }
            (_, "model") => self.model(field)?,
            (Codex, "model_provider") => {
                self.template.provider = non_blank(Some(field.text()?.to_owned()));
                None
            }
            (ClaudeCode, "effort") | (OpenCode, "reasoningEffort") | (Codex, "model_reasoning_effort") => {
                self.effort(field)
            }
            (ClaudeCode | Copilot | Gemini, "tools") => {
                self.allowed(field, findings)?;
                None
            }
            (OpenCode, "tools") => self.switches(field, |value| value.as_bool() == Some(true), findings)?,
            (OpenCode, "permission") => self.permission(field, findings)?,
            (ClaudeCode, "disallowedTools") => {
                self.denied(field, findings)?;
                None
            }
            (ClaudeCode, "permissionMode") if field.value == "plan" => self.read_only(),
            (Codex, "sandbox_mode") if field.value == "read-only" => self.read_only(),
            (ClaudeCode, "permissionMode") | (Codex, "sandbox_mode" | "approval_policy") => Some(LOOSENS),
            (OpenCode | Gemini, "temperature" | "top_p") => {
                self.template
                    .parameters
                    .insert(field.key.clone(), field.value.to_string());
                None
            }
            (Copilot, "agents") => {
                let agents = field.list(tools::entries)?;
                if !agents.iter().any(|agent| agent == "*") {
                    self.spawn(agents, field, findings);
                }
                None
            }
            (ClaudeCode | OpenCode | Copilot | Gemini, "spawn_list" | "grant_list" | "keywords") => {
                self.extension(field, findings)?;
                None
            }
            (_, key) => Some(self.unmapped_reason(key, field)?),
        };
        findings.extend(why.map(|why| unmapped(field, &field.value, why)));
        Ok(())
    }

    /// Returns the template.
    pub(super) fn finish(mut self, name: &AgentType) -> Result<Template, Malformed> {
        match self.spawn.take() {
            Some(agents) if agents.is_empty() => self.deny.extend(SPAWNING.iter().map(|tool| (*tool).to_owned())),
            Some(agents) => self.template.spawn_list = agents.into_iter().collect(),
            None => {}
        }
        let mode = self.template.tools.mode;
        self.template.tools = match self.allow.take() {
            Some(allow) if allow.is_empty() => ToolLists {
                mode,
                allow: Vec::new(),
                deny: vec!["*".to_owned()],
            },
            allow => ToolLists {
                mode,
                allow: allow.unwrap_or_default().into_iter().collect(),
                deny: sorted(self.deny),
            },
        };
        extension::check_patterns(name.as_str(), &self.template.tools, &self.template.grant_list)?;
        Ok(self.template)
    }

    fn model(&mut self, field: &Field) -> Result<Option<Why>, Located> {
        if field.value.is_array() {
            return Ok(Some("a list of models is not supported"));
        }
        if field.value.is_null() {
            return Ok(None);
        }
        let model = field.text()?.trim();
        let (provider, model) = match (self.format, model.split_once('/')) {
            (ForeignFormat::OpenCode, Some((provider, model))) => (Some(provider), model),
            _ => (None, model),
        };
        self.template.provider = provider.map(str::to_owned);
        self.template.model = non_blank(Some(model.to_owned())).filter(|model| model != "inherit");
        Ok(None)
    }

    fn effort(&mut self, field: &Field) -> Option<Why> {
        let text = field.value.as_str().map(str::trim).unwrap_or_default();
        self.template.effort = match text {
            "max" => Some(Effort::Xhigh),
            other => Effort::parse(other),
        };
        match (text, self.template.effort) {
            ("max", _) => Some("the highest effort in Troupe is xhigh, which is used instead"),
            (_, Some(_)) => None,
            (_, None) => Some("unknown effort; expected none, minimal, low, medium, high or xhigh"),
        }
    }

    const fn read_only(&mut self) -> Option<Why> {
        self.template.read_only = true;
        None
    }

    /// Reads an allow list. If the key is absent, every tool is allowed. An empty list allows no tools.
    fn allowed(&mut self, field: &Field, findings: &mut Vec<Finding>) -> Result<(), Located> {
        let mut allow = Vec::new();
        for entry in field.list(tools::entries)? {
            match tools::allowed(self.format, &entry) {
                // Further entries cannot allow more.
                Allowed::Everything => return Ok(()),
                Allowed::Patterns(patterns) => allow.extend(patterns),
                Allowed::Spawn(agents) => {
                    allow.extend(SPAWNING.iter().map(|tool| (*tool).to_owned()));
                    self.spawn(agents, field, findings);
                }
                Allowed::Nothing(why) => findings.push(unmapped(field, &Value::String(entry), why)),
            }
        }
        self.allow_only(allow);
        Ok(())
    }

    fn denied(&mut self, field: &Field, findings: &mut Vec<Finding>) -> Result<(), Located> {
        for entry in field.list(tools::entries)? {
            let (patterns, why) = tools::denied(self.format, &entry);
            self.deny.extend(patterns);
            findings.extend(why.map(|why| unmapped(field, &Value::String(entry), why)));
        }
        Ok(())
    }

    /// Reads a mapping from tools to on or off. The last matching entry applies, and all tools are on by default. An
    /// exception to a disabled tool is not imported, because deny takes precedence over allow here.
    fn switches(
        &mut self,
        field: &Field,
        is_on: impl Fn(&Value) -> bool,
        findings: &mut Vec<Finding>,
    ) -> Result<Option<Why>, Located> {
        let Some(entries) = field.entries() else {
            return Err(field.wrong("a mapping from tools to on and off"));
        };
        let mut allow: Option<Vec<String>> = None;
        let mut deny: Vec<String> = Vec::new();
        for (tool, value) in entries {
            match (tool, is_on(value)) {
                ("*", true) => (allow, deny) = (None, Vec::new()),
                ("*", false) => (allow, deny) = (Some(Vec::new()), Vec::new()),
                (tool, true) => {
                    if deny.iter().any(|pattern| pattern.contains('*')) {
                        let why = "an exception to a denied pattern is not imported";
                        findings.push(unmapped(field, &Value::String(tool.to_owned()), why));
                    }
                    if let (Some(allow), Allowed::Patterns(patterns)) = (&mut allow, tools::allowed(self.format, tool))
                    {
                        allow.extend(patterns);
                    }
                }
                (tool, false) => deny.extend(tools::denied(self.format, tool).0),
            }
        }
        if let Some(allow) = allow {
            self.allow_only(allow);
        }
        self.deny.extend(deny);
        Ok(None)
    }

    /// Reads a permission setting. Tools that are set to anything other than `allow` are denied, because this format's
    /// interactive prompts have no equivalent here.
    fn permission(&mut self, field: &Field, findings: &mut Vec<Finding>) -> Result<Option<Why>, Located> {
        const ASKS: Why = "Troupe can neither ask for a tool nor deny a part of it; the whole tool is denied";
        if let Some(text) = field.value.as_str() {
            if text == "allow" {
                return Ok(Some(LOOSENS));
            }
            self.allow_only(Vec::new());
            return Ok((text != "deny").then_some(ASKS));
        }
        let is_on = |value: &Value| match value {
            Value::Object(parts) => parts.values().all(|part| part == "allow"),
            other => other == "allow",
        };
        for (tool, value) in field.entries().unwrap_or_default() {
            if !is_on(value) && value != "deny" {
                findings.push(unmapped(field, &Value::String(tool.to_owned()), ASKS));
            }
        }
        self.switches(field, is_on, findings)
    }

    /// Adds agents that may be spawned. Agents without a valid name are omitted, which is stricter.
    fn spawn(&mut self, agents: Vec<String>, field: &Field, findings: &mut Vec<Finding>) {
        let mut names = BTreeSet::new();
        for agent in agents {
            match AgentType::parse(&agent) {
                Ok(name) => {
                    names.insert(name.to_string());
                }
                Err(_) => findings.push(unmapped(field, &Value::String(agent), "it is not an agent_type")),
            }
        }
        only(&mut self.spawn, names);
    }

    fn allow_only(&mut self, patterns: Vec<String>) {
        only(&mut self.allow, patterns.into_iter().collect());
    }

    /// Reads Troupe's own keys, which every YAML dialect accepts.
    fn extension(&mut self, field: &Field, findings: &mut Vec<Finding>) -> Result<(), Located> {
        let list = field.list(tools::entries)?;
        let has_blanks = field.value.as_array().is_some_and(|items| !items.is_empty()) || field.value.is_string();
        match field.key.as_str() {
            "spawn_list" if list.is_empty() && has_blanks => Err(blank("spawn_list", field)),
            "grant_list" if list.is_empty() && has_blanks => Err(blank("grant_list", field)),
            "spawn_list" if list.is_empty() => Ok(()),
            "spawn_list" => {
                self.spawn(list, field, findings);
                Ok(())
            }
            "grant_list" => {
                self.template.grant_list = sorted(list);
                Ok(())
            }
            _ => {
                self.template.keywords = sorted(list);
                Ok(())
            }
        }
    }

    /// Returns the reason why a key has no equivalent.
    ///
    /// # Errors
    ///
    /// If the key restricts agents in another dialect, or resembles a key that restricts agents in this one. A typo
    /// must not make an agent less restricted.
    fn unmapped_reason(&self, key: &str, field: &Field) -> Result<Why, Located> {
        if let Some((_, why)) = UNMAPPED_KEYS.iter().find(|(name, _)| *name == key) {
            return Ok(*why);
        }
        match keys::restriction(key, restrictions(self.format)) {
            Some(why) => Err(why.at(field.line)),
            None => Ok(UNKNOWN),
        }
    }
}

const fn restrictions(format: ForeignFormat) -> Restrictions {
    let (read_only, allow, deny) = match format {
        ForeignFormat::ClaudeCode => (Some("permissionMode"), Some("tools"), Some("disallowedTools")),
        ForeignFormat::OpenCode => (None, Some("tools"), Some("permission")),
        ForeignFormat::Copilot | ForeignFormat::Gemini => (None, Some("tools"), None),
        ForeignFormat::Codex => (Some("sandbox_mode"), None, None),
    };
    Restrictions {
        read_only,
        allow,
        deny,
        lists: !matches!(format, ForeignFormat::Codex),
    }
}

fn blank(key: &'static str, field: &Field) -> Located {
    Malformed::BlankList { key }.at(field.line)
}

/// Intersects the allowed names with `now`. If `allowed` is `None`, every name was allowed before.
fn only(allowed: &mut Option<BTreeSet<String>>, now: BTreeSet<String>) {
    match allowed {
        Some(earlier) => earlier.retain(|name| now.contains(name)),
        None => *allowed = Some(now),
    }
}

fn sorted(mut list: Vec<String>) -> Vec<String> {
    list.sort();
    list.dedup();
    list
}

/// Returns the finding about a key or value without an equivalent.
fn unmapped(field: &Field, value: &Value, why: Why) -> Finding {
    let text = value.to_string();
    let shown: String = text.chars().take(SHOWN_CHARS).collect();
    let cut = if shown.len() < text.len() { "..." } else { "" };
    Finding::warning(
        FindingKind::UnmappedField,
        field.line,
        format!("unmapped {} = {shown}{cut}: {why}", field.key),
    )
}
