//! The graph dialect: a `[template]` preamble that declares capabilities, then the prompt.

use tool_policy::MatchMode;

use crate::domain::{
    diagnostic::Finding,
    malformed::{Located, Malformed},
    template::{Parsed, Template},
};

/// The line that opens a preamble. Without it a file declares nothing.
const OPENER: &str = "[template]";
/// A description is taken from the text; more than this of it would not fit a list.
const MAX_DESCRIPTION_CHARS: usize = 200;

/// Reads a graph template.
#[must_use]
pub fn parse(text: &str) -> Parsed {
    let mut findings = Vec::new();
    let outcome = read(text, &mut findings);
    Parsed::new(outcome, findings)
}

fn read(text: &str, findings: &mut Vec<Finding>) -> Result<Template, Located> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines: Vec<&str> = text.lines().collect();
    let mut template = Template::empty(MatchMode::Glob);
    let mut body = lines.as_slice();
    if lines.first().is_some_and(|line| line.trim() == OPENER) {
        let end = lines.iter().position(|line| line.trim().is_empty());
        let (preamble, rest) = lines.split_at(end.unwrap_or(lines.len()));
        for (index, line) in preamble.iter().enumerate().skip(1) {
            declare(&mut template, line, index + 1, findings)?;
        }
        body = rest;
    } else {
        let finding = Finding::warning(Some(1), "no [template] preamble, so no capability is declared");
        findings.push(finding.suggest("start the file with [template], name, version, capabilities and constraints"));
    }
    let prompt = body.join("\n").trim().to_owned();
    template.description = Some(describe(&prompt));
    template.default_prompt = (!prompt.is_empty()).then_some(prompt);
    Ok(template)
}

/// Reads one `key = value` line of a preamble.
fn declare(template: &mut Template, line: &str, number: usize, findings: &mut Vec<Finding>) -> Result<(), Located> {
    let bad = |why: &str| Malformed::InvalidPreamble(format!("line {number}: {why}")).at(Some(number));
    let (key, value) = line.split_once('=').ok_or_else(|| bad("expected key = value"))?;
    let (key, value) = (key.trim(), value.trim());
    match key {
        // The file's stem is the name; the key is for readers.
        "name" => {
            string(value).ok_or_else(|| bad("name is not a \"string\""))?;
        }
        "version" => template.version = Some(string(value).ok_or_else(|| bad("version is not a \"string\""))?),
        "capabilities" => template.capabilities = list(value).ok_or_else(|| bad("not a list of \"strings\""))?,
        "constraints" => template.constraints = list(value).ok_or_else(|| bad("not a list of \"strings\""))?,
        _ => findings.push(Finding::warning(
            Some(number),
            format!("unknown key \"{key}\" in the [template] preamble is ignored"),
        )),
    }
    Ok(())
}

/// A quoted text without escapes; names need none.
fn string(value: &str) -> Option<String> {
    let inner = value.strip_prefix('"')?.strip_suffix('"')?;
    (!inner.contains(['"', '\\'])).then(|| inner.to_owned())
}

/// `["a", "b"]` on one line; a comma may follow the last.
fn list(value: &str) -> Option<Vec<String>> {
    let inner = value.strip_prefix('[')?.strip_suffix(']')?.trim();
    let inner = inner.strip_suffix(',').unwrap_or(inner);
    if inner.is_empty() {
        return Some(Vec::new());
    }
    inner.split(',').map(|item| string(item.trim())).collect()
}

/// The first line of prose.
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

    const SEED: &str = "[template]
name = \"orchestrator\"
version = \"1\"
capabilities = [\"edge_management_all\", \"delegate\"]
constraints = [\"log_decisions\",]

## Identity

You lead.
";

    #[test]
    fn reads_the_seed_example() {
        let parsed = parse(SEED);
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
    fn without_a_preamble_nothing_is_declared() {
        let parsed = parse("capabilities = [\"edge_management_all\"]\n");
        assert_eq!(parsed.findings.len(), 1);
        assert_eq!(parsed.template.unwrap().edge_management(), EdgeManagement::None);
    }

    #[test]
    fn capabilities_decide_on_edges() {
        for (capability, edges) in [
            ("spawn_nodes", EdgeManagement::All),
            ("edge_management_self", EdgeManagement::Own),
            ("edit_code", EdgeManagement::None),
        ] {
            let template = parse(&format!("[template]\ncapabilities = [\"{capability}\"]\n\nx")).template;
            assert_eq!(template.unwrap().edge_management(), edges, "{capability}");
        }
    }

    #[test]
    fn a_bad_preamble_is_malformed() {
        for line in [
            "capabilities",
            "capabilities = edit",
            "version = 1",
            "constraints = [a]",
        ] {
            let error = parse(&format!("[template]\n{line}\n\nx")).template.unwrap_err();
            assert!(
                error.to_string().starts_with("invalid [template] preamble: line 2: "),
                "{error}"
            );
        }
    }
}
