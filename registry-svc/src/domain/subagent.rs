//! The subagent dialect: YAML frontmatter with a model binding, then the instructions, kept byte for byte.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;
use tool_policy::MatchMode;

use crate::domain::{
    diagnostic::Finding,
    extension,
    finding_kind::FindingKind,
    frontmatter::Document,
    keys::{self, KeySet, Restrictions},
    malformed::{Located, Malformed},
    name::AgentType,
    template::{Needs, Template, ToolLists, non_blank},
    yaml::{self, Shape},
};

const NAME_LENGTHS: std::ops::RangeInclusive<usize> = 3..=64;

const RESTRICTIONS: Restrictions = Restrictions {
    read_only: None,
    allow: Some("tools"),
    deny: None,
    lists: true,
};

const KEYS: KeySet = KeySet {
    known: &[
        "name",
        "description",
        "model",
        "model_config",
        "tools",
        "keywords",
        "spawn_list",
        "grant_list",
    ],
    place: "the frontmatter",
    restrictions: RESTRICTIONS,
};

const MODEL_CONFIG_KEYS: KeySet = KeySet {
    known: &["provider", "model", "endpoint", "parameters"],
    place: "model_config",
    restrictions: RESTRICTIONS,
};

#[derive(Debug, Default, Deserialize)]
#[serde(default, expecting = "a mapping of keys")]
struct Frontmatter {
    name: Option<String>,
    description: Option<String>,
    model: Option<String>,
    model_config: Option<ModelConfig>,
    tools: Option<Vec<String>>,
    keywords: Option<Vec<String>>,
    spawn_list: Option<Vec<String>>,
    grant_list: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, expecting = "a mapping with provider, model, endpoint and parameters")]
struct ModelConfig {
    provider: Option<String>,
    model: Option<String>,
    endpoint: Option<String>,
    parameters: Option<BTreeMap<String, Value>>,
}

/// Reads a subagent and returns its name and content.
///
/// # Errors
///
/// The first defect, with its line.
pub fn read(text: &str, findings: &mut Vec<Finding>) -> Result<(AgentType, Template), Located> {
    let document = Document::split(text)?;
    let yaml = document.yaml.as_deref().ok_or(Malformed::NoFrontmatter)?;
    let (frontmatter, shape) =
        yaml::parse::<Frontmatter>(yaml).map_err(|error| Malformed::InvalidYaml(error.message).at(error.line))?;
    keys::check(&shape, KEYS, &document, findings)?;
    if let Some(config) = shape.get("model_config") {
        keys::check(config, MODEL_CONFIG_KEYS, &document, findings)?;
    }

    let at = |key: &str| document.line_of(key);
    let name = check_name(frontmatter.name).map_err(|why| why.at(at("name")))?;
    let binding = Binding::of(frontmatter.model, frontmatter.model_config.unwrap_or_default())
        .map_err(|(key, why)| why.at(at(key)))?;
    let tools = entries("tools", "tool", frontmatter.tools).map_err(|why| why.at(at("tools")))?;
    let keywords = entries("keywords", "keyword", frontmatter.keywords).map_err(|why| why.at(at("keywords")))?;
    warn_about_tools(&tools, (&document, &shape), findings);
    let tools = ToolLists {
        mode: MatchMode::Literal,
        allow: tools,
        deny: Vec::new(),
    };
    let raw = extension::Raw {
        spawn_list: frontmatter.spawn_list,
        grant_list: frontmatter.grant_list,
        keywords: None,
    };
    let extensions = extension::read(raw, (&document, &shape), findings)?;
    extension::check_patterns(name.as_str(), &tools, &extensions.grant_list)?;

    let body = document.verbatim_body(text);
    if body.trim().is_empty() {
        return Err(Malformed::MissingRequired("instructions").at(Some(document.body_line)));
    }
    let template = Template {
        description: non_blank(frontmatter.description),
        model: binding.model,
        provider: binding.provider,
        endpoint: binding.endpoint,
        parameters: binding.parameters,
        tools,
        spawn_list: extensions.spawn_list,
        grant_list: extensions.grant_list,
        keywords,
        needs: Needs::PromptOnly,
        default_prompt: Some(body.to_owned()),
        ..Template::empty(MatchMode::Literal)
    };
    Ok((name, template))
}

fn check_name(name: Option<String>) -> Result<AgentType, Malformed> {
    let name = non_blank(name).ok_or(Malformed::MissingRequired("name"))?;
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    let is_name = NAME_LENGTHS.contains(&name.len())
        && name.starts_with(|letter: char| letter.is_ascii_lowercase())
        && name.bytes().all(legal);
    match AgentType::parse(&name) {
        Ok(parsed) if is_name => Ok(parsed),
        Ok(_) | Err(_) => Err(Malformed::BadSubagentName(name)),
    }
}

/// The model and its provider.
struct Binding {
    model: Option<String>,
    provider: Option<String>,
    endpoint: Option<String>,
    parameters: BTreeMap<String, String>,
}

impl Binding {
    /// Checks the keys that select a model and its provider.
    ///
    /// # Errors
    ///
    /// Returns the invalid key and its defect.
    fn of(model: Option<String>, config: ModelConfig) -> Result<Self, (&'static str, Malformed)> {
        let stated = |key: &'static str, value: Option<String>| match value {
            Some(text) if text.trim().is_empty() => Err((key, Malformed::BlankModelConfig(key))),
            other => Ok(non_blank(other)),
        };
        let provider = stated("provider", config.provider)?;
        let endpoint = stated("endpoint", config.endpoint)?;
        let bound = stated("model", config.model)?;
        let model = match (non_blank(model), bound) {
            (Some(model), Some(config)) if model != config => {
                return Err(("model", Malformed::ModelConflict { model, config }));
            }
            (model, bound) => model.or(bound),
        };
        let parameters = config.parameters.unwrap_or_default();
        if parameters.keys().any(|key| key.trim().is_empty()) {
            return Err(("parameters", Malformed::BlankEntry("model_config.parameters keys")));
        }
        Ok(Self {
            model,
            provider,
            endpoint,
            parameters: parameters
                .into_iter()
                .map(|(key, value)| (key, value.to_string()))
                .collect(),
        })
    }
}

/// Reads a list. Blank entries and duplicates are errors in this dialect.
fn entries(key: &'static str, list: &'static str, raw: Option<Vec<String>>) -> Result<Vec<String>, Malformed> {
    let mut kept = BTreeSet::new();
    for entry in raw.unwrap_or_default() {
        let entry = entry.trim().to_owned();
        if entry.is_empty() {
            return Err(Malformed::BlankEntry(key));
        }
        if let Some(entry) = kept.replace(entry) {
            return Err(Malformed::DuplicateEntry { list, entry });
        }
    }
    Ok(kept.into_iter().collect())
}

/// Warns about tools that have another meaning in other dialects.
fn warn_about_tools(tools: &[String], (document, shape): (&Document, &Shape), findings: &mut Vec<Finding>) {
    let line = document.line_of("tools");
    if tools.is_empty() && shape.has("tools") {
        let finding = Finding::warning(FindingKind::EmptyList, line, "an empty tools list restricts nothing");
        findings.push(finding.suggest("remove tools, or name at least one"));
    }
    for tool in tools.iter().filter(|tool| tool.contains(['*', '?'])) {
        let finding = Finding::warning(
            FindingKind::LiteralPattern,
            line,
            format!("tools are literal names here; the wildcards in \"{tool}\" have no effect"),
        );
        findings.push(finding.suggest("name each tool, or write the agent as a role in .codex/.agents"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A subagent with all keys.
    const SEED: &str = "---
name: reviewer
description: Reviews diffs for style/security issues
model_config:
  provider: openai
  model: gpt-4o
  endpoint: https://proxy.example.dev/v1
  parameters:
    temperature: 0.1
    stop: [a, 1]
tools: [apply_patch, git_diff]
keywords: [review, diff, lint]
---

You are a meticulous reviewer.
";

    fn run(text: &str) -> (Result<(AgentType, Template), Located>, Vec<Finding>) {
        let mut findings = Vec::new();
        (read(text, &mut findings), findings)
    }

    fn with(yaml: &str) -> String {
        format!("---\nname: abc\n{yaml}---\nDo it.\n")
    }

    fn error(text: &str) -> Located {
        run(text).0.unwrap_err()
    }

    #[test]
    fn complete_subagent_is_read() {
        let (outcome, findings) = run(SEED);
        assert_eq!(findings, []);
        let (name, template) = outcome.unwrap();
        assert_eq!(name.as_str(), "reviewer");
        assert_eq!(template.model.as_deref(), Some("gpt-4o"));
        assert_eq!(template.provider.as_deref(), Some("openai"));
        assert_eq!(template.endpoint.as_deref(), Some("https://proxy.example.dev/v1"));
        let parameters: Vec<_> = template
            .parameters
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        assert_eq!(parameters, [("stop", "[\"a\",1]"), ("temperature", "0.1")]);
        assert_eq!(template.tools.mode, MatchMode::Literal);
        assert_eq!(template.tools.allow, ["apply_patch", "git_diff"]);
        assert_eq!(template.keywords, ["diff", "lint", "review"]);
        assert_eq!(
            template.default_prompt.as_deref(),
            Some("\nYou are a meticulous reviewer.\n")
        );
        assert_eq!(template.complete(), Ok(()));
    }

    #[test]
    fn body_is_verbatim() {
        for body in ["x", "\n x \n\n", "x\r\ny\r\n", "<!-- agent_name: a -->\nx", "---\nx"] {
            let (outcome, _) = run(&format!("\u{feff}---\r\nname: abc\r\n---\r\n{body}"));
            assert_eq!(outcome.unwrap().1.default_prompt.as_deref(), Some(body));
        }
    }

    #[test]
    fn description_is_optional() {
        let template = run(&with("")).0.unwrap().1;
        assert_eq!((template.description.clone(), template.complete()), (None, Ok(())));
    }

    #[test]
    fn invalid_names_are_rejected() {
        let (long, longer) = ("a".repeat(64), "a".repeat(65));
        for name in ["abc", "a-_", "a01", long.as_str()] {
            assert!(check_name(Some(name.to_owned())).is_ok(), "{name}");
        }
        for name in ["ab", "0abc", "-abc", "Abc", "a bc", "a.b", "äbc", longer.as_str()] {
            assert_eq!(
                check_name(Some(name.to_owned())).unwrap_err().to_string(),
                format!(
                    "invalid agent name `{name}`: name must start with a lowercase letter, include only lowercase \
                     letters, digits, hyphen, or underscore, and be 3-64 characters long"
                )
            );
        }
    }

    #[test]
    fn model_is_read_from_either_key() {
        for (yaml, model) in [
            ("model: a\n", Some("a")),
            ("model_config: {model: a}\n", Some("a")),
            ("model: a\nmodel_config: {model: a}\n", Some("a")),
            ("model: ' '\n", None),
            ("model_config:\n", None),
            ("model_config: {}\n", None),
        ] {
            let template = run(&with(yaml)).0.unwrap().1;
            assert_eq!(template.model.as_deref(), model, "{yaml}");
        }
    }

    #[test]
    fn malformed_subagent_errors_have_reason_and_line() {
        let rows: &[(&str, &str, Option<usize>)] = &[
            ("---\ndescription: d\n---\nx", "missing required field: name", None),
            ("---\nname: ' '\n---\nx", "missing required field: name", Some(2)),
            (
                "---\nname: abc\n---\n \n",
                "missing required field: instructions",
                Some(4),
            ),
            ("---\nname: abc\n---", "missing required field: instructions", Some(4)),
            ("---\n---\nx", "missing required field: name", None),
            ("x", "missing YAML frontmatter delimited by ---", None),
            (
                "---\nname: abc\n",
                "unterminated frontmatter: no closing \"---\" line",
                Some(1),
            ),
            (
                "---\nname: abc\ntools: [a, ' a']\n---\nx",
                "duplicate tool entry `a`",
                Some(3),
            ),
            (
                "---\nname: abc\nkeywords: [b, b]\n---\nx",
                "duplicate keyword entry `b`",
                Some(3),
            ),
            (
                "---\nname: abc\ntools: [a, '']\n---\nx",
                "tools must be non-empty strings",
                Some(3),
            ),
            (
                "---\nname: abc\nkeywords: [' ']\n---\nx",
                "keywords must be non-empty strings",
                Some(3),
            ),
            (
                "---\nname: abc\nmodel_config:\n  provider: ' '\n---\nx",
                "model_config.provider must be a non-empty string when set",
                Some(4),
            ),
            (
                "---\nname: abc\nmodel_config:\n  endpoint: ''\n---\nx",
                "model_config.endpoint must be a non-empty string when set",
                Some(4),
            ),
            (
                "---\nname: abc\nmodel_config: {parameters: {' ': 1}}\n---\nx",
                "model_config.parameters keys must be non-empty strings",
                None,
            ),
            (
                "---\nname: abc\nmodel: a\nmodel_config: {model: b}\n---\nx",
                "model `a` conflicts with model_config.model `b`",
                Some(3),
            ),
            (
                "---\nname: abc\ndeny_list: [a]\n---\nx",
                "key \"deny_list\" would restrict nothing here; this dialect has no equivalent key",
                Some(3),
            ),
            (
                "---\nname: abc\ndeny-list: [a]\n---\nx",
                "key \"deny-list\" would restrict nothing here; this dialect has no equivalent key",
                Some(3),
            ),
            (
                "---\nname: abc\ntool: [a]\n---\nx",
                "unknown key \"tool\"; did you mean \"tools\"? A misspelt restriction is an error",
                Some(3),
            ),
            (
                "---\nname: abc\nmodel_config: {tools: [a]}\n---\nx",
                "key \"tools\" would restrict nothing here; use \"tools\" at the top level of the frontmatter",
                None,
            ),
        ];
        for (text, message, line) in rows {
            let error = error(text);
            assert_eq!(error.why.to_string(), *message, "{text}");
            assert_eq!(error.line, *line, "{text}");
        }
    }

    #[test]
    fn wrong_types_are_invalid_yaml() {
        for yaml in [
            "tools: apply_patch",
            "tools: [[a]]",
            "tools: [*all]",
            "keywords: {a: b}",
            "model: [a]",
            "model_config: gpt",
            "model_config: {parameters: [a]}",
            "model_config: {parameters: {a: !secret b}}",
            "name: again",
            "a: [",
        ] {
            let why = error(&with(&format!("{yaml}\n"))).why.to_string();
            assert!(why.starts_with("invalid YAML: "), "{yaml}: {why}");
        }
    }

    #[test]
    fn unusual_subagents_are_valid_with_warnings() {
        let (outcome, findings) = run(&with("tools: []\nkeyword: [a]\nmodel_config: {modle: m}\n"));
        assert!(outcome.is_ok());
        let messages: Vec<_> = findings.iter().map(|finding| finding.message.as_str()).collect();
        assert_eq!(
            messages,
            [
                "unknown key \"keyword\" in the frontmatter is ignored",
                "unknown key \"modle\" in model_config is ignored",
                "an empty tools list restricts nothing",
            ]
        );
        let (outcome, findings) = run(&with("tools: ['git_*']\n"));
        assert_eq!(outcome.unwrap().1.tools.allow, ["git_*"]);
        assert_eq!(
            findings[0].message,
            "tools are literal names here; the wildcards in \"git_*\" have no effect"
        );
    }

    #[test]
    fn extension_keys_are_read() {
        let template = run(&with("spawn_list: [Worker]\ngrant_list: ['git_*']\n")).0.unwrap().1;
        assert_eq!(template.spawn_list, ["worker"]);
        assert_eq!(template.grant_list, ["git_*"]);
    }
}
