//! The graph dialect: a `[template]` preamble that declares capabilities, then the prompt.

use serde_json::Value;
use tool_policy::{MatchMode, locked_tools};

use crate::domain::{
    diagnostic::Finding,
    finding_kind::FindingKind,
    keys::{self, KeySet, Restrictions},
    malformed::{Located, Malformed},
    name::GraphName,
    template::{Parsed, Template},
    toml,
};

/// The line that opens a preamble. A file without it declares nothing.
const OPENER: &str = "[template]";
/// Maximum size of a preamble, in bytes. A larger block is not read as a preamble.
const MAX_PREAMBLE_BYTES: usize = 64 * 1024;
/// Maximum length of a description taken from the prompt, in characters, so that it fits a listing.
const MAX_DESCRIPTION_CHARS: usize = 200;

/// A graph template restricts tools by omitting capabilities. It has no tool lists.
const RESTRICTIONS: Restrictions = Restrictions {
    read_only: None,
    allow: None,
    deny: None,
    lists: false,
};

/// The keys of a preamble.
const KEYS: KeySet = KeySet {
    known: &["name", "version", "capabilities", "constraints"],
    place: "the [template] preamble",
    restrictions: RESTRICTIONS,
};

/// Reads a graph template without a known name.
#[must_use]
pub fn parse(text: &str) -> Parsed {
    run(None, text)
}

/// Reads a graph template with a known name.
#[must_use]
pub fn parse_named(name: &GraphName, text: &str) -> Parsed {
    run(Some(name), text)
}

fn run(name: Option<&GraphName>, text: &str) -> Parsed {
    let mut findings = Vec::new();
    let outcome = read(name, text, &mut findings);
    Parsed::new(outcome, findings)
}

fn read(name: Option<&GraphName>, text: &str, findings: &mut Vec<Finding>) -> Result<Template, Located> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines: Vec<&str> = text.lines().collect();
    let mut template = Template::empty(MatchMode::Glob);
    let opener = lines.iter().position(|line| !line.trim().is_empty());
    let opener = opener.filter(|index| lines.get(*index).is_some_and(|line| line.trim() == OPENER));
    let body = if let Some(opener) = opener {
        let rest = lines.get(opener + 1..).unwrap_or_default();
        let (preamble, body) = rest.split_at(length(rest));
        Preamble::new(preamble, opener + 2).declare(name, &mut template, findings)?;
        body
    } else {
        let finding = Finding::warning(
            FindingKind::MissingPreamble,
            Some(1),
            "no [template] preamble, so no capability is declared",
        );
        findings.push(finding.suggest("start the file with [template], name, version, capabilities and constraints"));
        lines.as_slice()
    };
    let locked = locked_tools(&template.capabilities).flat_map(|group| group.tools);
    template.tools.deny = locked.map(|tool| (*tool).to_owned()).collect();
    template.tools.deny.sort();
    // Capabilities restrict only the node itself. The nodes that it spawns have the tools of their own templates.
    template.grant_list = vec!["*".to_owned()];
    let prompt = body.join("\n").trim().to_owned();
    template.description = Some(describe(&prompt));
    template.default_prompt = (!prompt.is_empty()).then_some(prompt);
    Ok(template)
}

/// Returns the number of lines in a preamble. A preamble ends at an empty line, but never within a list.
fn length(lines: &[&str]) -> usize {
    let mut open = 0_usize;
    for (index, line) in lines.iter().enumerate() {
        if line.trim().is_empty() && open == 0 {
            return index;
        }
        open = brackets(line, open);
    }
    // For an unclosed list, the error should point to the list, not to the text after it.
    if open == 0 {
        lines.len()
    } else {
        lines
            .iter()
            .position(|line| line.trim().is_empty())
            .unwrap_or(lines.len())
    }
}

/// Returns the number of open brackets after a line. Brackets in strings and comments are ignored.
fn brackets(line: &str, mut open: usize) -> usize {
    let mut quote: Option<char> = None;
    let mut escaped = false;
    for letter in line.chars() {
        match (quote, letter) {
            (Some('"'), '\\') if !escaped => {
                escaped = true;
                continue;
            }
            (Some(end), letter) if end == letter && !escaped => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(letter),
            (None, '#') => return open,
            (None, '[') => open += 1,
            (None, ']') => open = open.saturating_sub(1),
            (None, _) => {}
        }
        escaped = false;
    }
    open
}

/// The lines between the opener and the prompt, and the number of the first of these lines.
struct Preamble<'a> {
    lines: &'a [&'a str],
    first_line: usize,
}

impl<'a> Preamble<'a> {
    const fn new(lines: &'a [&'a str], first_line: usize) -> Self {
        Self { lines, first_line }
    }

    /// Returns the line of a key, or the opener's line if the key is not found.
    fn line_of(&self, key: &str) -> usize {
        let is_key = |line: &&str| {
            let rest = line.trim_start_matches([' ', '\t', '"', '\'']).strip_prefix(key);
            rest.is_some_and(|rest| rest.trim_start_matches(['"', '\'', ' ', '\t']).starts_with('='))
        };
        match self.lines.iter().position(is_key) {
            Some(index) => self.first_line + index,
            None => self.first_line - 1,
        }
    }

    fn bad(line: usize, why: &str) -> Located {
        Malformed::InvalidPreamble(format!("line {line}: {why}")).at(Some(line))
    }

    fn declare(
        &self,
        name: Option<&GraphName>,
        template: &mut Template,
        findings: &mut Vec<Finding>,
    ) -> Result<(), Located> {
        let entries = self.parse()?;
        for (key, value) in entries {
            let line = || self.line_of(&key);
            let string = || match &value {
                Value::String(text) => Ok(text.clone()),
                _ => Err(Self::bad(line(), &format!("{key} is not a \"string\""))),
            };
            let list = || {
                let items = value
                    .as_array()
                    .map(|items| items.iter().map(|item| item.as_str().map(str::to_owned)));
                items
                    .and_then(Iterator::collect::<Option<Vec<String>>>)
                    .ok_or_else(|| Self::bad(line(), &format!("{key} is not a list of \"strings\"")))
            };
            match key.as_str() {
                "name" => findings.extend(different_name(name, &string()?, line())),
                "version" => template.version = Some(string()?),
                "capabilities" => template.capabilities = list()?,
                "constraints" => template.constraints = list()?,
                other => {
                    if let Some(why) = keys::restriction(other, RESTRICTIONS) {
                        return Err(why.at(Some(line())));
                    }
                    keys::warn(other, KEYS, || Some(line()), findings);
                }
            }
        }
        Ok(())
    }

    fn parse(&self) -> Result<serde_json::Map<String, Value>, Located> {
        let text = self.lines.join("\n");
        if text.len() > MAX_PREAMBLE_BYTES {
            let why = format!("the preamble is larger than {MAX_PREAMBLE_BYTES} bytes");
            return Err(Self::bad(self.first_line - 1, &why));
        }
        let failed = |error: toml::TomlError| {
            let line = self.first_line + error.line.map_or(0, |line| line - 1);
            Self::bad(line, &error.message)
        };
        toml::parse(&text).map_err(failed)
    }
}

/// Warns about a `name` key that differs from the file's stem. The stem is the name.
fn different_name(name: Option<&GraphName>, written: &str, line: usize) -> Option<Finding> {
    let name = name.filter(|name| name.as_str() != written)?;
    let message = format!(
        "name is \"{written}\", but the template has the name of its file, \"{}\"",
        name.as_str()
    );
    Some(
        Finding::warning(FindingKind::DifferentName, Some(line), message)
            .suggest("rename the file, or correct name")
            .replace(written, name.as_str()),
    )
}

/// Returns the first line of prose.
fn describe(prompt: &str) -> String {
    let line = prompt
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with('#'));
    line.unwrap_or_default().chars().take(MAX_DESCRIPTION_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::template::EdgeManagement;

    #[test]
    fn complete_graph_template_is_read() {
        let parsed = parse(
            "[template]\nname = 'orchestrator'\nversion = '1'\ncapabilities = ['edge_management_all', 'delegate']\n\
             constraints = ['log_decisions',]\n\n## Identity\n\nYou lead.\n",
        );
        assert_eq!(parsed.findings, []);
        let template = parsed.template.unwrap();
        assert_eq!(template.version.as_deref(), Some("1"));
        assert_eq!(template.capabilities, ["edge_management_all", "delegate"]);
        assert_eq!(template.constraints, ["log_decisions"]);
        assert_eq!(template.description.as_deref(), Some("You lead."));
        assert_eq!(template.default_prompt.as_deref(), Some("## Identity\n\nYou lead."));
        assert_eq!(template.edge_management(), EdgeManagement::All);
    }

    #[test]
    fn tools_without_capability_are_denied() {
        let commands = ["exec_command", "write_stdin"];
        let writes = ["apply_patch", "delete_file", "write_file"];
        let both = [
            "apply_patch",
            "delete_file",
            "exec_command",
            "write_file",
            "write_stdin",
        ];
        for (text, denied) in [
            ("x", &both[..]),
            ("[template]\ncapabilities = ['read_repo']\n\nx", &both),
            ("[template]\ncapabilities = ['edit_code']\n\nx", &commands),
            ("[template]\ncapabilities = ['write_docs']\n\nx", &commands),
            ("[template]\ncapabilities = ['run_commands']\n\nx", &writes),
            ("[template]\ncapabilities = ['run_commands', 'edit_code']\n\nx", &[]),
            ("[template]\ncapabilities = ['Edit_Code', 'run-commands']\n\nx", &both),
        ] {
            let template = parse(text).template.unwrap();
            assert_eq!(template.tools.deny, denied, "{text:?}");
            assert_eq!(template.grant_list, ["*"], "{text:?}");
        }
    }

    #[test]
    fn missing_preamble_declares_nothing() {
        let parsed = parse("capabilities = [\"edge_management_all\"]\n");
        assert_eq!(parsed.findings.len(), 1);
        assert_eq!(parsed.template.unwrap().edge_management(), EdgeManagement::None);
    }

    #[test]
    fn invalid_preamble_is_malformed() {
        for (line, number) in [
            ("capabilities", 2),
            ("capabilities = edit", 2),
            ("version = 1", 2),
            ("version = 1979-05-27", 2),
            ("name = ['a']", 2),
            ("constraints = [a]", 2),
            ("constraints = ['a', 1]", 2),
            ("constraints = 'a'", 2),
            ("version = '1'\nversion = '2'", 3),
            ("version = '1'\nYou are the lead.", 3),
            ("capabilities = ['a'", 2),
        ] {
            let parsed = parse(&format!("[template]\n{line}\n\nx"));
            let error = parsed.template.unwrap_err().to_string();
            let start = "invalid [template] preamble: line ";
            assert!(error.starts_with(start), "{line}: {error}");
            let found = parsed.findings[0].line.unwrap();
            // The TOML library decides where it reports an unclosed list.
            assert!(found == number || line == "capabilities = ['a'", "{line}: {error}");
            assert!(parsed.findings[0].suggestion.is_some());
        }
    }

    #[test]
    fn restricting_key_of_other_format_is_an_error() {
        for key in [
            "tools",
            "allow_list",
            "deny_lst",
            "read-only",
            "spawn_list",
            "grant_list",
            "spawn_lst",
        ] {
            let parsed = parse(&format!("[template]\nversion = '1'\n{key} = ['a']\n\nx"));
            assert_eq!(
                parsed.template.unwrap_err().to_string(),
                format!("key \"{key}\" would restrict nothing here; this dialect has no equivalent key")
            );
            assert_eq!(parsed.findings[0].line, Some(3));
        }
    }

    #[test]
    fn preamble_is_toml_up_to_empty_line() {
        let rows: &[(&str, &[&str], &str)] = &[
            ("[template]\ncapabilities = ['a', \"b\"]\n\nx", &["a", "b"], "x"),
            ("[template]\r\ncapabilities = ['a']\r\n\r\nx\r\ny", &["a"], "x\ny"),
            ("\u{feff}\n\n [template] \ncapabilities = ['a']\n\nx", &["a"], "x"),
            (
                "[template]\ncapabilities = [\n  'a', # not ]\n\n  '[b',\n]\nversion = '1'\n\nx",
                &["a", "[b"],
                "x",
            ),
            ("[template]\n# a comment [\ncapabilities = []\n\nx", &[], "x"),
            ("[template]\ncapabilities = [\"a\\\"]\"]\n\nx", &["a\"]"], "x"),
            ("[template]\n\nx", &[], "x"),
            ("[template]", &[], ""),
            (
                "[templates]\ncapabilities = ['a']\n\nx",
                &[],
                "[templates]\ncapabilities = ['a']\n\nx",
            ),
            (
                "x\n[template]\ncapabilities = ['a']\n",
                &[],
                "x\n[template]\ncapabilities = ['a']",
            ),
        ];
        for (text, capabilities, prompt) in rows {
            let template = parse(text).template.unwrap();
            assert_eq!(template.capabilities, *capabilities, "{text:?}");
            assert_eq!(
                template.default_prompt.as_deref().unwrap_or_default(),
                *prompt,
                "{text:?}"
            );
        }
    }

    #[test]
    fn unusual_preambles_are_valid_with_warnings() {
        let name = GraphName::parse("Lead").unwrap();
        let findings = parse_named(&name, "[template]\nname = 'lead'\ncapabilites = ['a']\n\nx").findings;
        let found: Vec<_> = findings
            .iter()
            .map(|finding| (finding.line, finding.message.as_str(), finding.suggestion.as_deref()))
            .collect();
        // The preamble is a table, so its keys are sorted.
        assert_eq!(
            found,
            [
                (
                    Some(3),
                    "unknown key \"capabilites\" in the [template] preamble is ignored",
                    Some("did you mean capabilities?")
                ),
                (
                    Some(2),
                    "name is \"lead\", but the template has the name of its file, \"Lead\"",
                    Some("rename the file, or correct name")
                ),
            ]
        );
    }

    #[test]
    fn capabilities_determine_edge_management() {
        for (capabilities, edges) in [
            ("[]", EdgeManagement::None),
            ("['edge_management_all']", EdgeManagement::All),
            ("['spawn_nodes']", EdgeManagement::All),
            ("['edge_management_self']", EdgeManagement::Own),
            ("['edge_management_self', 'spawn_nodes']", EdgeManagement::All),
            ("['Spawn_Nodes']", EdgeManagement::None),
        ] {
            let text = format!("[template]\ncapabilities = {capabilities}\n\nx");
            assert_eq!(parse(&text).template.unwrap().edge_management(), edges, "{text}");
        }
        assert_eq!(parse("x").template.unwrap().edge_management(), EdgeManagement::None);
    }
}
