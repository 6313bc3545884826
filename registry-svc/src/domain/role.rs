//! The role dialect: YAML frontmatter, a default prompt, and a block for each persona.

use serde::Deserialize;
use tool_policy::MatchMode;

use crate::domain::{
    diagnostic::Finding,
    effort::Effort,
    extension,
    frontmatter::Document,
    keys::{self, KeySet, Restrictions},
    lists::{self, WhenEmpty},
    malformed::{Located, Malformed},
    name::{AgentType, PersonaName},
    persona::{self, Blocks, Markers},
    template::{Parsed, Persona, Template, ToolLists, non_blank},
    yaml::{self, Shape},
};

const KEYS: KeySet = KeySet {
    known: &[
        "description",
        "model",
        "reasoning_effort",
        "read_only",
        "agent_names",
        "allow_list",
        "deny_list",
        "spawn_list",
        "grant_list",
        "keywords",
    ],
    place: "the frontmatter",
    restrictions: RESTRICTIONS,
};

const PERSONA_KEYS: KeySet = KeySet {
    known: &["name", "description", "model", "reasoning_effort"],
    place: "an entry of agent_names",
    restrictions: RESTRICTIONS,
};

const RESTRICTIONS: Restrictions = Restrictions {
    read_only: Some("read_only"),
    allow: Some("allow_list"),
    deny: Some("deny_list"),
    lists: true,
};

/// The frontmatter as written. `read_only` is not an Option, so null is an error: the author intended a restriction and
/// left out the value.
#[derive(Debug, Default, Deserialize)]
#[serde(default, expecting = "a mapping of keys")]
struct Frontmatter {
    description: Option<String>,
    model: Option<String>,
    reasoning_effort: Option<Effort>,
    read_only: bool,
    agent_names: Option<Vec<Declaration>>,
    allow_list: Option<Vec<String>>,
    deny_list: Option<Vec<String>>,
    spawn_list: Option<Vec<String>>,
    grant_list: Option<Vec<String>>,
    keywords: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "a mapping with name and description")]
struct Declaration {
    name: String,
    description: Option<String>,
    model: Option<String>,
    reasoning_effort: Option<Effort>,
}

/// Reads a role. `name` is used in messages only.
#[must_use]
pub fn parse(name: &AgentType, text: &str) -> Parsed {
    let mut findings = Vec::new();
    let outcome = read(name, text, &mut findings);
    Parsed::new(outcome, findings)
}

fn read(name: &AgentType, text: &str, findings: &mut Vec<Finding>) -> Result<Template, Located> {
    let document = Document::split(text)?;
    let (frontmatter, shape) = match &document.yaml {
        Some(yaml) => {
            yaml::parse::<Frontmatter>(yaml).map_err(|error| Malformed::InvalidYaml(error.message).at(error.line))?
        }
        None => (Frontmatter::default(), Shape::Null),
    };
    check_keys(&document, &shape, findings)?;

    let from = (&document, &shape);
    let mut list = |key, raw, when_empty| lists::clean(key, raw, when_empty, from, findings);
    let tools = ToolLists {
        mode: MatchMode::Glob,
        allow: list("allow_list", frontmatter.allow_list, WhenEmpty::Unrestricted)?,
        deny: list("deny_list", frontmatter.deny_list, WhenEmpty::Nothing)?,
    };
    let raw = extension::Raw {
        spawn_list: frontmatter.spawn_list,
        grant_list: frontmatter.grant_list,
        keywords: frontmatter.keywords,
    };
    let extensions = extension::read(raw, from, findings)?;
    extension::check_patterns(name.as_str(), &tools, &extensions.grant_list)?;

    let blocks = Blocks::split(&document.body, document.body_line, Markers::Exact);
    Ok(Template {
        description: non_blank(frontmatter.description),
        model: non_blank(frontmatter.model),
        effort: frontmatter.reasoning_effort,
        read_only: frontmatter.read_only,
        tools,
        spawn_list: extensions.spawn_list,
        grant_list: extensions.grant_list,
        keywords: extensions.keywords,
        default_prompt: non_blank(Some(blocks.default)),
        personas: personas(frontmatter.agent_names.unwrap_or_default(), &blocks.named)
            .map_err(|located| document.locate_persona(located, "name"))?,
        ..Template::empty(MatchMode::Glob)
    })
}

fn check_keys(document: &Document, shape: &Shape, findings: &mut Vec<Finding>) -> Result<(), Located> {
    keys::check(shape, KEYS, document, findings)?;
    let declarations = shape.entries().iter().find(|(key, _)| key == "agent_names");
    for declaration in declarations.map_or(&[][..], |(_, list)| list.items()) {
        keys::check(declaration, PERSONA_KEYS, document, findings)?;
    }
    Ok(())
}

fn personas(declared: Vec<Declaration>, blocks: &[persona::Block]) -> Result<Vec<Persona>, Located> {
    let declared = declared.into_iter().map(|declaration| Persona {
        name: PersonaName::normalise(&declaration.name),
        description: non_blank(declaration.description),
        model: non_blank(declaration.model),
        effort: declaration.reasoning_effort,
        prompt: String::new(),
    });
    persona::pair(declared.collect(), blocks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{diagnostic::Severity, malformed::Incomplete};

    fn run(text: &str) -> Parsed {
        parse(&AgentType::parse("auditor").unwrap(), text)
    }

    fn template(text: &str) -> Template {
        Template::clone(&run(text).template.unwrap())
    }

    #[test]
    fn unknown_keys_of_personas_share_limit() {
        let persona = |number: usize| format!("  - {{name: p{number}, description: d, one: 1, two: 2}}\n");
        let personas: String = (0..keys::MAX_UNKNOWN).map(persona).collect();
        let parsed = run(&format!("---\ndescription: d\nagent_names:\n{personas}---\nx"));
        let warnings = parsed
            .findings
            .iter()
            .filter(|finding| finding.severity == Severity::Warning);
        assert_eq!(warnings.count(), keys::MAX_UNKNOWN + 1);
    }

    #[test]
    fn file_without_frontmatter_is_all_prompt() {
        let parsed = run("just a prompt");
        assert_eq!(
            parsed.template.unwrap().default_prompt.as_deref(),
            Some("just a prompt")
        );
        assert_eq!(parsed.findings[0].message, Incomplete::Description.to_string());
    }

    #[test]
    fn extension_keys_are_read() {
        let template = template("---\nspawn_list: [Worker, bug-hunter]\ngrant_list: [wait]\nkeywords: [b, a]\n---\nx");
        assert_eq!(template.spawn_list, ["bug-hunter", "worker"]);
        assert_eq!(template.grant_list, ["wait"]);
        assert_eq!(template.keywords, ["a", "b"]);
    }

    #[test]
    fn names_are_normalised_and_blanks_are_absent() {
        let text = "---\nmodel: ' '\nagent_names:\n  - name: ' Claude '\n    description: d\n---\nx\n\
                    <!-- agent_name: CLAUDE -->\ny";
        let template = template(text);
        assert_eq!(template.model, None);
        assert_eq!(template.personas[0].name.as_str(), "claude");
    }

    #[test]
    fn malformed_template_errors_have_reason_and_line() {
        let rows: &[(&str, &str, Option<usize>)] = &[
            (
                "---\ndescription: x\n",
                "unterminated frontmatter: no closing \"---\" line",
                Some(1),
            ),
            (
                "---\nread_only: yes\n---\nx",
                "invalid YAML: read_only: invalid type: string \"yes\", expected a boolean at line 2 column 12",
                Some(2),
            ),
            (
                "---\ndescription: a\ndescription: b\n---\nx",
                "invalid YAML: duplicate field `description`",
                None,
            ),
            (
                "---\ntools: [a]\n---\nx",
                "key \"tools\" would restrict nothing here; use \"allow_list\" at the top level of the frontmatter",
                Some(2),
            ),
            (
                "---\ndescription: x\nread-only: true\n---\nx",
                "unknown key \"read-only\"; did you mean \"read_only\"? A misspelt restriction is an error",
                Some(3),
            ),
            (
                "---\nagent_names:\n  - name: a\n    deny_list: [x]\n---\nx\n<!-- agent_name: a -->\ny",
                "key \"deny_list\" would restrict nothing here; use \"deny_list\" at the top level of the frontmatter",
                Some(4),
            ),
            (
                "---\nallow_list: [' ']\n---\nx",
                "allow_list has only blank entries; remove the key or add an entry",
                Some(2),
            ),
            (
                "---\nspawn_list: ['a b']\n---\nx",
                "spawn_list: \"a b\" is not an agent_type",
                Some(2),
            ),
            (
                "---\ndescription: x\n---\nx\n<!-- agent_name: a -->\ny",
                "found agent_name blocks but frontmatter agent_names is missing",
                Some(5),
            ),
            (
                "---\nagent_names:\n  - name: a\n---\nx",
                "invalid agent_names: missing agent_name block for \"a\"",
                None,
            ),
            (
                "---\nagent_names:\n  - name: a\n---\nx\n<!-- agent_name: a -->\ny\n<!-- agent_name: b -->\nz",
                "invalid agent_names: missing agent_names entry for \"b\"",
                Some(8),
            ),
        ];
        for (text, message, line) in rows {
            let parsed = run(text);
            let error = parsed.template.unwrap_err().to_string();
            assert!(error.starts_with(message), "{text:?}: {error}");
            let finding = parsed.findings.last().unwrap();
            assert_eq!(finding.severity, Severity::Error);
            assert_eq!(finding.message, error);
            if line.is_some() {
                assert_eq!(finding.line, *line, "{text:?}");
            }
        }
    }

    #[test]
    fn wrong_types_are_invalid_yaml() {
        for yaml in [
            "read_only:",
            "read_only: \"true\"",
            "reasoning_effort: extreme",
            "reasoning_effort: HIGH",
            "allow_list: wait",
            "allow_list: [{a: b}]",
            "agent_names: {name: a}",
            "agent_names: [{description: nameless}]",
            "allow_list: [*foo]",
            "description: [a]",
            "- a list",
            "a: [",
        ] {
            let error = run(&format!("---\n{yaml}\n---\nx")).template.unwrap_err().to_string();
            assert!(error.starts_with("invalid YAML: "), "{yaml}: {error}");
        }
    }

    #[test]
    fn unusual_templates_are_valid_with_warnings() {
        let parsed = run(
            "---\ndescription: d\ncolor: blue\nallow_list: []\nagent_names:\n  - name: a\n    \
                          description: d\n    modle: m\n---\nx\n<!-- agent_name: a -->\ny",
        );
        assert!(parsed.template.is_ok());
        let messages: Vec<_> = parsed
            .findings
            .iter()
            .map(|finding| (finding.line, finding.message.as_str()))
            .collect();
        assert_eq!(
            messages,
            [
                (Some(3), "unknown key \"color\" in the frontmatter is ignored"),
                (Some(8), "unknown key \"modle\" in an entry of agent_names is ignored"),
                (Some(4), "an empty allow_list restricts nothing"),
            ]
        );
    }

    #[test]
    fn unmet_listing_requirement_fails_only_listing() {
        let rows: &[(&str, Incomplete)] = &[
            ("---\nmodel: m\n---\nx", Incomplete::Description),
            ("---\ndescription: d\n---\n", Incomplete::DefaultPrompt),
            (
                "---\ndescription: d\nagent_names: [{name: a}]\n---\nx\n<!-- agent_name: a -->\ny",
                Incomplete::PersonaDescription(PersonaName::normalise("a")),
            ),
        ];
        for (text, incomplete) in rows {
            let parsed = run(text);
            assert_eq!(parsed.template.unwrap().complete(), Err(incomplete.clone()), "{text:?}");
            assert_eq!(parsed.findings.last().unwrap().message, incomplete.to_string());
        }
    }
}
