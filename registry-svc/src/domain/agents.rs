//! The directory `.codex/agents`, which holds files of two dialects. This module detects a file's dialect and name.

use serde::de::IgnoredAny;

use crate::domain::{
    dialect::Dialect,
    frontmatter::Document,
    malformed::{Located, Malformed},
    name::AgentType,
    profile, subagent,
    template::Parsed,
    yaml::{self, Shape},
};

/// A key that only subagents have.
const MODEL_CONFIG: &str = "model_config";

/// A parsed file of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// The agent's name. A malformed file reserves the name that it appears to declare, so that no other file takes it.
    pub name: AgentType,
    /// Profile or subagent.
    pub dialect: Dialect,
    /// The parsed content.
    pub parsed: Parsed,
}

/// Reads a file. The stem is the name only if the text declares none.
#[must_use]
pub fn read(stem: &str, text: &str) -> Agent {
    let mut findings = Vec::new();
    let (dialect, outcome) = match detect_dialect(text) {
        Ok(dialect @ Dialect::Profile) => (dialect, profile::read(text, &mut findings)),
        Ok(dialect) => (dialect, subagent::read(text, &mut findings)),
        Err(located) => (guess_dialect(text), Err(located)),
    };
    let (name, outcome) = match outcome {
        Ok((name, template)) => (name, Ok(template)),
        Err(located) => (salvage(stem, text), Err(located)),
    };
    Agent {
        name,
        dialect,
        parsed: Parsed::new(outcome, findings),
    }
}

/// Returns the dialect of a text: a profile if it has a key that only profiles have, otherwise a subagent.
fn detect_dialect(text: &str) -> Result<Dialect, Located> {
    let document = Document::split(text)?;
    let yaml = document.yaml.as_deref().ok_or(Malformed::NoFrontmatter)?;
    let (_, shape) =
        yaml::parse::<IgnoredAny>(yaml).map_err(|error| Malformed::InvalidYaml(error.message).at(error.line))?;
    match profile_key(&shape) {
        Some(key) if shape.has(MODEL_CONFIG) => {
            Err(Malformed::MixedDialects(key.to_owned()).at(document.line_of(MODEL_CONFIG)))
        }
        Some(_) => Ok(Dialect::Profile),
        None => Ok(Dialect::Subagent),
    }
}

fn profile_key(shape: &Shape) -> Option<&'static str> {
    profile::OWN_KEYS.iter().copied().find(|key| shape.has(key))
}

/// Guesses the dialect of an invalid text from its lines.
fn guess_dialect(text: &str) -> Dialect {
    let is_profile = lines(text).any(|(key, _)| profile::OWN_KEYS.contains(&key));
    if is_profile {
        Dialect::Profile
    } else {
        Dialect::Subagent
    }
}

fn salvage(stem: &str, text: &str) -> AgentType {
    written_name(&["agent_type", "name"], text).unwrap_or_else(|| AgentType::salvage(stem))
}

/// Returns the name under the first of these keys in a text that may be frontmatter.
pub(super) fn written_name(keys: &[&str], text: &str) -> Option<AgentType> {
    let (_, value) = lines(text).find(|(key, _)| keys.contains(key))?;
    name_in(value)
}

/// Returns the name in a scalar, which may be quoted and followed by a comment.
pub(super) fn name_in(value: &str) -> Option<AgentType> {
    let value = value.split(" #").next().unwrap_or(value);
    AgentType::parse(value.trim().trim_matches(['"', '\''])).ok()
}

/// Returns the `key: value` lines of a text that may be frontmatter.
fn lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = text.lines().skip(1).take_while(|line| line.trim() != "---");
    lines.filter_map(|line| {
        let (key, value) = line.split_once(':')?;
        Some((key.trim_end().trim_matches(['"', '\'']), value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::template::MAX_FINDINGS;

    const PROFILE: &str = "agent_type: reviewer\ndescription: d\nmodel: m\ncolor: red\n";

    fn agent(yaml: &str) -> Agent {
        read("stem", &format!("---\n{yaml}---\nx\n"))
    }

    #[test]
    fn keys_decide_dialect() {
        for (yaml, dialect) in [
            (PROFILE, Dialect::Profile),
            ("agent_type: a\n", Dialect::Profile),
            ("name: abc\ncolor: red\n", Dialect::Profile),
            ("name: abc\nagent_names: []\n", Dialect::Profile),
            ("agent_persons: []\n", Dialect::Profile),
            ("name: abc\ntool_denylist: []\n", Dialect::Profile),
            ("name: abc\nread_only: true\n", Dialect::Profile),
            ("name: abc\nreasoning_effort: low\n", Dialect::Profile),
            ("name: abc\n", Dialect::Subagent),
            (
                "name: abc\ndescription: d\nmodel: m\ntools: [a]\nkeywords: [k]\n",
                Dialect::Subagent,
            ),
            ("name: abc\nspawn_list: [a]\ngrant_list: [b]\n", Dialect::Subagent),
            ("name: abc\nmodel_config: {model: m}\n", Dialect::Subagent),
            ("name: abc\nsomething: else\n", Dialect::Subagent),
            ("description: nameless\n", Dialect::Subagent),
            // Not valid YAML.
            ("color: [\n", Dialect::Profile),
            ("name: [\n", Dialect::Subagent),
        ] {
            assert_eq!(agent(yaml).dialect, dialect, "{yaml}");
        }
    }

    #[test]
    fn findings_of_file_are_bounded() {
        let tools: Vec<String> = (0..MAX_FINDINGS + 50).map(|number| format!("'t{number}*'")).collect();
        let agent = agent(&format!("name: abc\ntools: [{}]\n", tools.join(", ")));
        let findings = agent.parsed.findings;
        assert_eq!(findings.len(), MAX_FINDINGS + 1);
        assert_eq!(findings[MAX_FINDINGS].message, "50 more findings are not shown");
    }

    #[test]
    fn mixed_dialects_are_an_error() {
        for key in [
            "color: red",
            "reasoning_effort: low",
            "agent_type: abc",
            "read_only: false",
        ] {
            let agent = agent(&format!("name: abc\n{key}\nmodel_config: {{model: m}}\n"));
            let why = agent.parsed.template.unwrap_err().to_string();
            let name = key.split(':').next().unwrap();
            assert_eq!(
                why,
                format!(
                    "model_config belongs to a subagent and \"{name}\" to a profile; use the keys of one of \
                     them"
                )
            );
            assert_eq!(agent.parsed.findings[0].line, Some(4));
            assert!(agent.parsed.findings[0].suggestion.is_some());
        }
    }

    #[test]
    fn name_comes_from_key_and_not_file() {
        for (yaml, name) in [
            (PROFILE, "reviewer"),
            ("name: legacy\ndescription: d\nmodel: m\ncolor: red\n", "legacy"),
            ("name: abc\n", "abc"),
        ] {
            let agent = agent(yaml);
            assert_eq!(agent.name.as_str(), name);
            assert!(agent.parsed.template.is_ok(), "{:?}", agent.parsed);
        }
    }

    #[test]
    fn malformed_file_keeps_its_apparent_name() {
        for (yaml, name) in [
            ("agent_type: 'Reviewer' # comment\ncolor: [\n", "reviewer"),
            ("name: abc\ntools: [*x]\n", "abc"),
            ("name: not a name\n", "stem"),
            ("description: d\n", "stem"),
            ("color: red\n", "stem"),
        ] {
            let agent = agent(yaml);
            assert_eq!(agent.name.as_str(), name, "{yaml}");
            assert!(agent.parsed.template.is_err());
        }
        let agent = read("My Notes", "no frontmatter");
        assert_eq!(agent.name.as_str(), "my-notes");
        assert_eq!(agent.parsed.template, Err(Malformed::NoFrontmatter));
    }
}
