//! The profile dialect: YAML frontmatter that describes the agent, a default prompt, and a block for each person.
//!
//! The keys have two spellings that must not be mixed: `agent_type` with `agent_persons`, and the older `name` with
//! `agent_names`.

use std::collections::BTreeSet;

use serde::Deserialize;
use tool_policy::MatchMode;

use crate::domain::{
    diagnostic::Finding,
    effort::Effort,
    extension,
    finding_kind::FindingKind,
    frontmatter::Document,
    keys::{self, KeySet, Restrictions},
    lists::NameList,
    malformed::{Located, Malformed},
    name::{AgentType, PersonaName},
    persona::{self, Block, Blocks, Markers},
    template::{Persona, Template, ToolLists, non_blank},
    yaml::{self, Shape},
};

/// The keys that identify a profile. `name` is not one of them, because subagents have a `name` too.
pub const OWN_KEYS: &[&str] = &[
    "agent_type",
    "agent_persons",
    "agent_names",
    "color",
    "tool_denylist",
    "read_only",
    "reasoning_effort",
];

const COLORS: &[&str] = &["blue", "cyan", "green", "yellow", "magenta", "red"];
const NAME_LENGTHS: std::ops::RangeInclusive<usize> = 3..=64;
const MAX_DESCRIPTION_BYTES: usize = 4096;

const RESTRICTIONS: Restrictions = Restrictions {
    read_only: Some("read_only"),
    allow: Some("tools"),
    deny: Some("tool_denylist"),
    lists: true,
};

const KEYS: KeySet = KeySet {
    known: &[
        "agent_type",
        "name",
        "description",
        "model",
        "reasoning_effort",
        "color",
        "tools",
        "read_only",
        "tool_denylist",
        "agent_persons",
        "agent_names",
        "spawn_list",
        "grant_list",
        "keywords",
    ],
    place: "the frontmatter",
    restrictions: RESTRICTIONS,
};

#[derive(Debug, Default, Deserialize)]
#[serde(default, expecting = "a mapping of keys")]
struct Frontmatter {
    agent_type: Option<String>,
    name: Option<String>,
    description: Option<String>,
    model: Option<String>,
    reasoning_effort: Option<Effort>,
    color: Option<String>,
    tools: Option<NameList>,
    read_only: bool,
    tool_denylist: Option<NameList>,
    agent_persons: Option<Vec<Person>>,
    agent_names: Option<Vec<Person>>,
    spawn_list: Option<Vec<String>>,
    grant_list: Option<Vec<String>>,
    keywords: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, expecting = "a mapping with a name and a description")]
struct Person {
    agent_name: Option<String>,
    name: Option<String>,
    description: Option<String>,
    model: Option<String>,
    reasoning_effort: Option<Effort>,
}

/// The two spellings of the same keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spelling {
    Current,
    Legacy,
}

impl Spelling {
    /// Returns the spelling that a file uses.
    ///
    /// # Errors
    ///
    /// If the file has keys of both spellings.
    fn of(shape: &Shape) -> Result<Self, Malformed> {
        let has = |keys: [&str; 2]| keys.iter().any(|key| shape.has(key));
        match (has(["agent_type", "agent_persons"]), has(["name", "agent_names"])) {
            (true, true) => Err(Malformed::Invalid {
                what: "frontmatter",
                why: "cannot mix legacy fields (name/agent_names) with agent_type/agent_persons".to_owned(),
            }),
            (_, false) => Ok(Self::Current),
            (false, true) => Ok(Self::Legacy),
        }
    }

    const fn name_key(self) -> &'static str {
        match self {
            Self::Current => "agent_type",
            Self::Legacy => "name",
        }
    }

    const fn persons_key(self) -> &'static str {
        match self {
            Self::Current => "agent_persons",
            Self::Legacy => "agent_names",
        }
    }

    const fn person_name_key(self) -> &'static str {
        match self {
            Self::Current => "agent_name",
            Self::Legacy => "name",
        }
    }

    const fn person_keys(self) -> KeySet {
        let (known, place): (&'static [&'static str], _) = match self {
            Self::Current => (
                &["agent_name", "description", "model", "reasoning_effort"],
                "an entry of agent_persons",
            ),
            Self::Legacy => (
                &["name", "description", "model", "reasoning_effort"],
                "an entry of agent_names",
            ),
        };
        KeySet {
            known,
            place,
            restrictions: RESTRICTIONS,
        }
    }
}

/// Reads a profile and returns its name and content.
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
    let spelling = Spelling::of(&shape).map_err(|why| why.at(document.line_of("name")))?;
    check_person_keys(&shape, spelling, &document, findings)?;

    let located = |key: &str| {
        let line = document.line_of(key);
        move |why: Malformed| why.at(line)
    };
    let written = match spelling {
        Spelling::Current => frontmatter.agent_type,
        Spelling::Legacy => frontmatter.name,
    };
    let name = required(spelling.name_key(), written)?;
    let name = check_name(&name).map_err(located(spelling.name_key()))?;
    let description = required("description", frontmatter.description)?;
    if description.len() > MAX_DESCRIPTION_BYTES {
        let why = invalid(
            "description",
            format!("length exceeds {MAX_DESCRIPTION_BYTES} characters"),
        );
        return Err(located("description")(why));
    }
    let model = required("model", frontmatter.model)?;
    let color = required("color", frontmatter.color)?;
    if !COLORS.contains(&color.as_str()) {
        return Err(located("color")(invalid(
            "color",
            format!("unsupported color \"{color}\""),
        )));
    }

    let tools = tools(
        frontmatter.tools,
        frontmatter.tool_denylist,
        (&document, &shape),
        findings,
    )?;
    let raw = extension::Raw {
        spawn_list: frontmatter.spawn_list,
        grant_list: frontmatter.grant_list,
        keywords: frontmatter.keywords,
    };
    let extensions = extension::read(raw, (&document, &shape), findings)?;
    extension::check_patterns(name.as_str(), &tools, &extensions.grant_list)?;

    let persons = match spelling {
        Spelling::Current => frontmatter.agent_persons,
        Spelling::Legacy => frontmatter.agent_names,
    };
    let blocks = Blocks::split(&document.body, document.body_line, Markers::Tolerant);
    let personas = personas(persons.unwrap_or_default(), &blocks.named, spelling)
        .map_err(|error| document.locate_persona(error, spelling.person_name_key()))
        .map_err(|error| in_terms_of(spelling, error, blocks.named.is_empty()))?;
    let default_prompt = non_blank(Some(blocks.default));
    if default_prompt.is_none() && personas.is_empty() {
        return Err(invalid("body", "agent instructions are empty".to_owned()).at(Some(document.body_line)));
    }
    let template = Template {
        description: Some(description),
        model: Some(model),
        effort: frontmatter.reasoning_effort,
        read_only: frontmatter.read_only,
        tools,
        spawn_list: extensions.spawn_list,
        grant_list: extensions.grant_list,
        keywords: extensions.keywords,
        default_prompt,
        personas,
        ..Template::empty(MatchMode::GlobIgnoreCase)
    };
    Ok((name, template))
}

fn invalid(what: &'static str, why: String) -> Malformed {
    Malformed::Invalid { what, why }
}

fn required(key: &'static str, value: Option<String>) -> Result<String, Malformed> {
    non_blank(value).ok_or(Malformed::MissingField(key))
}

fn check_person_keys(
    shape: &Shape,
    spelling: Spelling,
    document: &Document,
    findings: &mut Vec<Finding>,
) -> Result<(), Located> {
    let persons = shape.entries().iter().find(|(key, _)| key == spelling.persons_key());
    for person in persons.map_or(&[][..], |(_, list)| list.items()) {
        keys::check(person, spelling.person_keys(), document, findings)?;
    }
    Ok(())
}

fn check_name(name: &str) -> Result<AgentType, Malformed> {
    let why = |why: &str| Err(invalid("name", why.to_owned()));
    let alphanumeric = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    if !NAME_LENGTHS.contains(&name.chars().count()) {
        return why("length must be 3-64 characters");
    }
    if !name.starts_with(|letter: char| letter.is_ascii_alphanumeric()) {
        return why("must start with alphanumeric character");
    }
    if !name.chars().all(|letter| alphanumeric(letter) || letter == '-') {
        return why("only lowercase letters, digits, and hyphens are allowed");
    }
    if !name.ends_with(alphanumeric) {
        return why("must end with alphanumeric character");
    }
    AgentType::parse(name).map_err(|error| invalid("name", error.to_string()))
}

/// Reads `tools`. If the key is absent or its list has `*`, every tool is allowed. Otherwise, the listed tools are
/// allowed. An empty list allows no tools.
fn tools(
    allowed: Option<NameList>,
    denied: Option<NameList>,
    (document, shape): (&Document, &Shape),
    findings: &mut Vec<Finding>,
) -> Result<ToolLists, Located> {
    let stated = denied.unwrap_or_default().0;
    let mut deny = distinct(&stated);
    if deny.is_empty() && !stated.is_empty() {
        let key = "tool_denylist";
        return Err(Malformed::BlankList { key }.at(document.line_of(key)));
    }
    let stated = allowed.unwrap_or_default().0;
    let mut allow = distinct(&stated);
    if allow.iter().any(|tool| tool == "*") {
        allow.clear();
    } else if allow.is_empty() && shape.has("tools") {
        if !shape.has_list("tools") || !stated.is_empty() {
            let finding = Finding::warning(
                FindingKind::EmptyList,
                document.line_of("tools"),
                "an empty tools list allows no tool",
            );
            findings.push(finding.suggest("remove tools to allow everything, or write `tools: []` to allow no tool"));
        }
        deny = vec!["*".to_owned()];
    }
    Ok(ToolLists {
        mode: MatchMode::GlobIgnoreCase,
        allow,
        deny,
    })
}

/// Returns the names trimmed and sorted, without blanks and duplicates. Names that differ only in case are duplicates.
fn distinct(names: &[String]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut kept: Vec<String> = names
        .iter()
        .map(|name| name.trim())
        .filter(|name| !name.is_empty() && seen.insert(name.to_ascii_lowercase()))
        .map(str::to_owned)
        .collect();
    kept.sort();
    kept
}

fn personas(persons: Vec<Person>, blocks: &[Block], spelling: Spelling) -> Result<Vec<Persona>, Located> {
    if let Some(block) = blocks.iter().find(|block| block.name.is_empty()) {
        let why = invalid("agent_name", "marker is missing a name".to_owned());
        return Err(why.at(Some(block.line)));
    }
    let declared = persons.into_iter().map(|person| {
        let written = match spelling {
            Spelling::Current => person.agent_name,
            Spelling::Legacy => person.name,
        };
        let declared = Persona {
            name: PersonaName::normalise(&required(spelling.person_name_key(), written)?),
            description: non_blank(person.description),
            model: non_blank(person.model),
            effort: person.reasoning_effort,
            prompt: String::new(),
        };
        check_pair(&declared, spelling).map(|()| declared)
    });
    persona::pair(declared.collect::<Result<_, _>>()?, blocks)
}

/// Checks that a persona sets both a model and an effort, or neither.
fn check_pair(persona: &Persona, spelling: Spelling) -> Result<(), Malformed> {
    let (missing, given) = match (&persona.model, persona.effort) {
        (Some(_), None) => ("reasoning_effort", "model"),
        (None, Some(_)) => ("model", "reasoning_effort"),
        (Some(_), Some(_)) | (None, None) => return Ok(()),
    };
    let why = format!(
        "{missing} is required when {given} is set for agent_name \"{}\"",
        persona.name
    );
    Err(invalid(spelling.persons_key(), why))
}

/// Translates an error about the pairing of persons and blocks into this dialect's terms.
fn in_terms_of(spelling: Spelling, error: Located, no_blocks: bool) -> Located {
    let key = spelling.persons_key();
    let (what, why) = match error.why {
        Malformed::BlocksWithoutPersonas => (key, format!("agent_name blocks require {key} metadata")),
        Malformed::MissingBlock(_) if no_blocks => (key, format!("{key} metadata requires agent_name blocks")),
        Malformed::MissingBlock(name) => (key, format!("missing agent_name block for \"{name}\"")),
        Malformed::UndeclaredBlock(name) => (key, format!("missing {key} entry for \"{name}\"")),
        Malformed::RepeatedPersona(name) => (key, format!("duplicate agent_name \"{name}\"")),
        Malformed::RepeatedBlock(name) => ("agent_name", format!("duplicate agent_name \"{name}\"")),
        Malformed::EmptyBlock(name) => ("agent_name", format!("instructions for \"{name}\" are empty")),
        other => {
            return Located {
                line: error.line,
                why: other,
            };
        }
    };
    invalid(what, why).at(error.line)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Valid frontmatter without persons.
    const HEAD: &str = "agent_type: reviewer\ndescription: Reviews.\nmodel: gpt-5.2\ncolor: blue\n";

    fn run(text: &str) -> (Result<(AgentType, Template), Located>, Vec<Finding>) {
        let mut findings = Vec::new();
        (read(text, &mut findings), findings)
    }

    fn with(yaml: &str, body: &str) -> String {
        format!("---\n{HEAD}{yaml}---\n{body}")
    }

    fn template(text: &str) -> Template {
        run(text).0.unwrap().1
    }

    fn error(text: &str) -> Located {
        run(text).0.unwrap_err()
    }

    #[test]
    fn complete_profile_is_read() {
        let text = with(
            "reasoning_effort: medium\ntools: [Read, exec_*]\ntool_denylist: apply_patch, Write\nread_only: true\n\
             agent_persons:\n  - {agent_name: Strict, description: Thorough., model: m, reasoning_effort: high}\n  \
             - {agent_name: lenient, description: Kind.}\nspawn_list: [worker]\nkeywords: [review]\n",
            "Review.\n\n<!--agent_name: strict-->\nBe strict.\n<!-- agent_name : lenient -->\nBe kind.\n",
        );
        assert_eq!(run(&text.replace('\n', "\r\n")), run(&text));
        let (outcome, findings) = run(&text);
        assert_eq!(findings, []);
        let (name, template) = outcome.unwrap();
        assert_eq!(name.as_str(), "reviewer");
        assert_eq!(template.description.as_deref(), Some("Reviews."));
        assert_eq!(template.model.as_deref(), Some("gpt-5.2"));
        assert_eq!(template.effort, Some(Effort::Medium));
        assert!(template.read_only);
        assert_eq!(template.tools.mode, MatchMode::GlobIgnoreCase);
        assert_eq!(template.tools.allow, ["Read", "exec_*"]);
        assert_eq!(template.tools.deny, ["Write", "apply_patch"]);
        assert_eq!(template.spawn_list, ["worker"]);
        assert_eq!(template.keywords, ["review"]);
        assert_eq!(template.default_prompt.as_deref(), Some("Review."));
        let personas: Vec<_> = template
            .personas
            .iter()
            .map(|persona| (persona.name.as_str(), persona.effort, persona.prompt.as_str()))
            .collect();
        assert_eq!(
            personas,
            [
                ("lenient", None, "Be kind."),
                ("strict", Some(Effort::High), "Be strict.")
            ]
        );
    }

    #[test]
    fn legacy_profile_equals_current_one() {
        let current = with(
            "agent_persons: [{agent_name: a, description: d}]\n",
            "x\n<!-- agent_name: a -->\ny",
        );
        let legacy = current
            .replace("agent_type:", "name:")
            .replace("agent_persons:", "agent_names:")
            .replace("{agent_name:", "{name:");
        assert_eq!(run(&legacy), run(&current));
    }

    #[test]
    fn absent_empty_and_listed_tools_differ() {
        let none: &[&str] = &[];
        let rows: &[(&str, &[&str], &[&str], usize)] = &[
            ("", none, none, 0),
            ("tools: []\n", none, &["*"], 0),
            ("tools:\n", none, &["*"], 1),
            ("tools: ''\n", none, &["*"], 1),
            ("tools: ' , '\n", none, &["*"], 1),
            ("tools: [' ']\n", none, &["*"], 1),
            ("tools: '*'\n", none, none, 0),
            ("tools: [wait, '*']\n", none, none, 0),
            ("tools: wait, Read, WAIT\n", &["Read", "wait"], none, 0),
            ("tools: [b, ' a ', B]\n", &["a", "b"], none, 0),
            ("tools: [1]\n", &["1"], none, 0),
            ("tool_denylist: [wait]\n", none, &["wait"], 0),
            ("tool_denylist: []\n", none, none, 0),
            ("tools: []\ntool_denylist: [wait]\n", none, &["*"], 0),
            ("tools: [wait]\ntool_denylist: ['*']\n", &["wait"], &["*"], 0),
        ];
        for (yaml, allow, deny, warnings) in rows {
            let (outcome, findings) = run(&with(yaml, "x"));
            let tools = outcome.unwrap().1.tools;
            assert_eq!(
                (tools.allow.as_slice(), tools.deny.as_slice()),
                (owned(allow).as_slice(), owned(deny).as_slice()),
                "{yaml:?}"
            );
            assert_eq!(findings.len(), *warnings, "{yaml:?} {findings:?}");
        }
    }

    fn owned(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn error_names_missing_field() {
        for key in ["agent_type", "description", "model", "color"] {
            let line = HEAD.lines().find(|line| line.starts_with(key)).unwrap();
            for replacement in ["", &format!("{key}:\n"), &format!("{key}: ' '\n")] {
                // The other profile keys still identify the file as a profile.
                let text = with("read_only: false\n", "x").replace(&format!("{line}\n"), replacement);
                assert_eq!(error(&text).why, Malformed::MissingField(key), "{text}");
            }
        }
        assert_eq!(Malformed::MissingField("color").to_string(), "missing field `color`");
    }

    #[test]
    fn invalid_names_are_rejected() {
        let long = "a".repeat(64);
        for name in ["abc", "a-b", "0a1", "a--b", long.as_str()] {
            assert_eq!(check_name(name).unwrap().as_str(), name);
        }
        let longer = "a".repeat(65);
        for (name, why) in [
            ("ab", "length must be 3-64 characters"),
            (longer.as_str(), "length must be 3-64 characters"),
            ("-abc", "must start with alphanumeric character"),
            ("_abc", "must start with alphanumeric character"),
            ("a_bc", "only lowercase letters, digits, and hyphens are allowed"),
            ("Abc", "only lowercase letters, digits, and hyphens are allowed"),
            ("a b", "only lowercase letters, digits, and hyphens are allowed"),
            ("abc-", "must end with alphanumeric character"),
        ] {
            assert_eq!(
                check_name(name).unwrap_err().to_string(),
                format!("invalid name: {why}"),
                "{name}"
            );
        }
    }

    #[test]
    fn malformed_profile_errors_have_reason_and_line() {
        let persons = "agent_persons: [{agent_name: a, description: d}]\n";
        let a = "x\n<!-- agent_name: a -->\nA\n";
        let rows: &[(String, &str, Option<usize>)] = &[
            (
                with("", "x").replace("blue", "Blue"),
                "invalid color: unsupported color \"Blue\"",
                Some(5),
            ),
            (
                with("", "x").replace("Reviews.", &"d".repeat(4097)),
                "invalid description: length exceeds 4096 characters",
                Some(3),
            ),
            (
                with("", "x").replace("reviewer", "Reviewer"),
                "invalid name: only lowercase letters, digits, and hyphens are allowed",
                Some(2),
            ),
            (
                with("name: reviewer\n", "x"),
                "invalid frontmatter: cannot mix legacy fields (name/agent_names) with agent_type/agent_persons",
                Some(6),
            ),
            (
                with("agent_names: [{name: a}]\n", a),
                "invalid frontmatter: cannot mix legacy fields (name/agent_names) with agent_type/agent_persons",
                None,
            ),
            (with("", " \n"), "invalid body: agent instructions are empty", Some(7)),
            (
                with("", a),
                "invalid agent_persons: agent_name blocks require agent_persons metadata",
                Some(8),
            ),
            (
                with(persons, "x"),
                "invalid agent_persons: agent_persons metadata requires agent_name blocks",
                Some(6),
            ),
            (
                with("agent_persons: [{agent_name: a}, {agent_name: b}]\n", a),
                "invalid agent_persons: missing agent_name block for \"b\"",
                Some(6),
            ),
            (
                with(persons, &format!("{a}<!-- agent_name: b -->\nB")),
                "invalid agent_persons: missing agent_persons entry for \"b\"",
                Some(11),
            ),
            (
                with("agent_persons: [{agent_name: a}, {agent_name: A}]\n", a),
                "invalid agent_persons: duplicate agent_name \"a\"",
                Some(6),
            ),
            (
                with(persons, &format!("{a}<!-- agent_name: A -->\nB")),
                "invalid agent_name: duplicate agent_name \"a\"",
                Some(11),
            ),
            (
                with(persons, "x\n<!-- agent_name: a -->\n \n"),
                "invalid agent_name: instructions for \"a\" are empty",
                Some(9),
            ),
            (
                with(persons, &format!("{a}<!-- agent_name: -->\nB")),
                "invalid agent_name: marker is missing a name",
                Some(11),
            ),
            (
                with("agent_persons: [{agent_name: a, model: m}]\n", a),
                "invalid agent_persons: reasoning_effort is required when model is set for agent_name \"a\"",
                None,
            ),
            (
                with("agent_persons: [{agent_name: a, reasoning_effort: low}]\n", a),
                "invalid agent_persons: model is required when reasoning_effort is set for agent_name \"a\"",
                None,
            ),
            (
                with("agent_persons: [{name: a}]\n", a),
                "missing field `agent_name`",
                None,
            ),
            (
                with("allow_list: [wait]\n", "x"),
                "key \"allow_list\" would restrict nothing here; use \"tools\" at the top level of the frontmatter",
                Some(6),
            ),
            (
                with("tool_denylst: [wait]\n", "x"),
                "unknown key \"tool_denylst\"; did you mean \"tool_denylist\"? A misspelt restriction is an error",
                Some(6),
            ),
            (
                with("tool_denylist: ' '\n", "x"),
                "tool_denylist has only blank entries; remove the key or add an entry",
                Some(6),
            ),
            ("x".to_owned(), "missing YAML frontmatter delimited by ---", None),
            (
                format!("---\n{HEAD}x"),
                "unterminated frontmatter: no closing \"---\" line",
                Some(1),
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
            "read_only:",
            "read_only: yes",
            "reasoning_effort: HIGH",
            "tools: 5",
            "tools: {a: b}",
            "tools: [{a: b}]",
            "tools: [*all]",
            "tool_denylist: true",
            "agent_persons: {a: b}",
            "color: red",
            "grant_list: wait",
            "a: [",
        ] {
            let why = error(&with(&format!("{yaml}\n"), "x")).why.to_string();
            assert!(why.starts_with("invalid YAML: "), "{yaml}: {why}");
        }
    }

    #[test]
    fn default_prompt_is_optional_with_personas() {
        let text = with(
            "agent_persons: [{agent_name: a, description: d}]\n",
            "<!-- agent_name: a -->\nA",
        );
        assert_eq!(template(&text).default_prompt, None);
    }

    #[test]
    fn unusual_profiles_are_valid_with_warnings() {
        let (outcome, findings) = run(&with("keyword: [a]\ngrant_list: []\n", "x"));
        assert!(outcome.is_ok());
        let messages: Vec<_> = findings
            .iter()
            .map(|finding| (finding.line, finding.message.as_str()))
            .collect();
        assert_eq!(
            messages,
            [
                (Some(6), "unknown key \"keyword\" in the frontmatter is ignored"),
                (Some(7), "an empty grant_list restricts nothing"),
            ]
        );
    }
}
