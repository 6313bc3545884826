//! Checks of the names that a template refers to: tools and roles.

use tool_policy::{MatchMode, Pattern, known_tools};

use super::recovery::key_at;
use crate::domain::{diagnostic::Finding, finding_kind::FindingKind, name::AgentType, template::Template};

/// The keys that hold tool patterns.
const TOOL_KEYS: &[&str] = &["allow_list", "deny_list", "grant_list", "tools", "tool_denylist"];
/// The key that holds roles.
const ROLE_KEYS: &[&str] = &["spawn_list"];
/// The prefix of the tools of MCP servers, whose names are not known here.
const MCP: &str = "mcp__";

/// Returns a warning for each tool pattern that matches no tool of the supported agent programs and none of `own`.
pub(super) fn tools(template: &Template, text: &str, own: &[String]) -> Vec<Finding> {
    let mut known: Vec<&str> = known_tools().collect();
    known.extend(own.iter().map(String::as_str));
    let mode = template.tools.mode;
    let patterns = [
        (&template.tools.allow, mode),
        (&template.tools.deny, mode),
        (&template.grant_list, MatchMode::Glob),
    ];
    let mut findings = Vec::new();
    for (list, mode) in patterns {
        for entry in list.iter().filter(|entry| !entry.starts_with(MCP)) {
            let Ok(pattern) = Pattern::new(entry.as_str(), mode) else {
                continue;
            };
            if known.iter().any(|tool| pattern.matches(tool)) {
                continue;
            }
            let message = format!("no agent program has a tool that \"{entry}\" matches");
            let finding = Finding::warning(FindingKind::UnknownTool, line_of(text, TOOL_KEYS, entry), message);
            findings.push(match nearest(entry, known.iter().copied()) {
                Some(meant) => finding.suggest(format!("did you mean {meant}?")).replace(entry, meant),
                None => finding.suggest("name a tool of your own program with --known-tool"),
            });
        }
    }
    findings
}

/// Returns a warning for each role of `spawn_list` that is not known. `None`: roles are not checked.
pub(super) fn roles(template: &Template, text: &str, known: Option<&[AgentType]>) -> Vec<Finding> {
    let Some(known) = known else { return Vec::new() };
    let mut findings = Vec::new();
    for entry in &template.spawn_list {
        let Ok(role) = AgentType::parse(entry) else { continue };
        if role.is_default() || known.iter().any(|known| known.is_alias_of(&role)) {
            continue;
        }
        let message = format!("spawn_list: no role \"{entry}\" exists");
        let finding = Finding::warning(FindingKind::UnknownRole, line_of(text, ROLE_KEYS, entry), message);
        findings.push(match nearest(entry, known.iter().map(AgentType::as_str)) {
            Some(meant) => finding.suggest(format!("did you mean {meant}?")).replace(entry, meant),
            None => finding.suggest("create it with `troupe agents new`, or remove the entry"),
        });
    }
    findings
}

/// Returns the line of an entry below one of these keys.
fn line_of(text: &str, keys: &[&str], entry: &str) -> Option<usize> {
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut is_below = false;
    for (index, line) in lines.iter().enumerate().skip(1) {
        if let Some(key) = key_at(&lines, index) {
            is_below = keys.contains(&key);
        }
        if is_below && word_in(line, entry).is_some() {
            return Some(index + 1);
        }
    }
    None
}

/// Returns the byte position of a word, if no letter, digit, `_` or `-` is next to it.
pub(super) fn word_in(line: &str, word: &str) -> Option<usize> {
    let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-');
    let mut places = line.match_indices(word).map(|(start, _)| start);
    places.find(|start| {
        let before = line.get(..*start).and_then(|text| text.chars().next_back());
        let after = line.get(start + word.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

/// Returns the known name that a name may be a typo of.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let reach = (name.chars().count() / 4).clamp(1, 3);
    known
        .map(|other| (strsim::osa_distance(name, other), other))
        .filter(|(distance, _)| *distance <= reach)
        .min()
        .map(|(_, other)| other)
}
