//! Translation of other programs' tools to canonical tool names.
//!
//! A rule that Troupe patterns cannot express is never loosened: if only a part of a tool is allowed, the tool is
//! omitted; if only a part is denied, the whole tool is denied.

use tool_policy::NativeTools;

use crate::domain::foreign::ForeignFormat;

/// The meaning of an entry in an allow list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Every tool.
    Everything,
    /// The tools that match these patterns.
    Patterns(Vec<String>),
    /// Permission to spawn these agents.
    Spawn(Vec<String>),
    /// An entry without an equivalent, and the reason.
    Nothing(&'static str),
}

/// The tools that spawn agents.
pub const SPAWNING: &[&str] = &["spawn_agent", "spawn_node"];

/// The tools that run commands.
const COMMANDS: &[&str] = &["exec_command", "write_stdin"];

/// Tools of a program, and their canonical names.
type ToolTable = &'static [(&'static [&'static str], &'static [&'static str])];

const OPEN_CODE: ToolTable = &[
    (&["bash"], COMMANDS),
    (&["edit", "write", "patch"], &["apply_patch"]),
    (&["read"], &["read_file"]),
    (&["grep"], &["grep_files"]),
    (&["glob", "list"], &["list_dir"]),
    (&["webfetch", "websearch"], &["web_search"]),
    (&["task"], SPAWNING),
    (&["todowrite", "todoread"], &["update_plan"]),
    (&["question"], &["request_user_input"]),
];

const COPILOT: ToolTable = &[
    (&["execute", "shell", "bash", "powershell"], COMMANDS),
    (&["read"], &["read_file", "view_image"]),
    (&["notebookread"], &["read_file"]),
    (&["edit", "multiedit", "write", "notebookedit"], &["apply_patch"]),
    (&["search"], &["grep_files", "list_dir"]),
    (&["grep"], &["grep_files"]),
    (&["glob"], &["list_dir"]),
    (&["agent", "custom-agent", "task"], SPAWNING),
    (&["web", "websearch", "webfetch"], &["web_search"]),
    (&["todo", "todowrite"], &["update_plan"]),
];

const GEMINI: ToolTable = &[
    (&["run_shell_command"], COMMANDS),
    (&["read_file", "read_many_files"], &["read_file"]),
    (&["write_file"], &["apply_patch", "write_file"]),
    (&["replace"], &["apply_patch"]),
    (&["glob", "list_directory"], &["list_dir"]),
    (&["grep_search", "search_file_content"], &["grep_files"]),
    (&["web_fetch", "google_web_search"], &["web_search"]),
    (&["write_todos"], &["update_plan"]),
    (&["ask_user"], &["request_user_input"]),
];

/// Translates an entry of an allow list. The entry must be trimmed and not blank.
#[must_use]
pub fn allowed(format: ForeignFormat, entry: &str) -> Allowed {
    if entry == "*" {
        return Allowed::Everything;
    }
    let Some((tool, part)) = parted(entry) else {
        return Allowed::Patterns(canonical(format, entry));
    };
    if patterns(format, tool)
        .iter()
        .any(|pattern| SPAWNING.contains(&pattern.as_str()))
    {
        let agents = part.split(',').map(str::trim).filter(|agent| !agent.is_empty());
        return Allowed::Spawn(agents.map(str::to_owned).collect());
    }
    Allowed::Nothing("a part of a tool cannot be allowed; the entry is omitted, which is stricter")
}

/// Translates an entry of a deny list. Returns the patterns, and the message to report if the entry denies less than
/// the patterns do.
#[must_use]
pub fn denied(format: ForeignFormat, entry: &str) -> (Vec<String>, Option<&'static str>) {
    match parted(entry) {
        None => (patterns(format, entry), None),
        Some((tool, _)) => (
            patterns(format, tool),
            Some("a part of a tool cannot be denied; the whole tool is denied, which is stricter"),
        ),
    }
}

/// Splits an entry of the form `Tool(part)`.
fn parted(entry: &str) -> Option<(&str, &str)> {
    let (tool, part) = entry.split_once('(')?;
    Some((tool.trim(), part.strip_suffix(')').unwrap_or(part)))
}

/// Returns the canonical names of a tool and its native name. The tool is denied if any of these names is denied.
fn patterns(format: ForeignFormat, tool: &str) -> Vec<String> {
    let mut names = canonical(format, tool);
    if !names.iter().any(|name| name == tool) {
        names.push(tool.to_owned());
    }
    names
}

/// Returns the canonical names of a tool, or its native name if it has no canonical name.
fn canonical(format: ForeignFormat, tool: &str) -> Vec<String> {
    let of_table = |table: ToolTable, tool: &str| {
        let found = table.iter().find(|(native, _)| native.contains(&tool));
        found.map(|(_, names)| owned(names))
    };
    let known = match format {
        ForeignFormat::ClaudeCode => claude(tool),
        ForeignFormat::OpenCode => of_table(OPEN_CODE, tool),
        ForeignFormat::Copilot => of_table(COPILOT, &tool.to_lowercase()).or_else(|| {
            let (server, tool) = tool.split_once('/')?;
            Some(vec![format!("mcp__{server}__{tool}")])
        }),
        ForeignFormat::Gemini => of_table(GEMINI, tool).or_else(|| match tool.strip_prefix("mcp_")? {
            "*" => Some(vec!["mcp__*".to_owned()]),
            rest => {
                let (server, tool) = rest.split_once('_')?;
                Some(vec![format!("mcp__{server}__{tool}")])
            }
        }),
        ForeignFormat::Codex => None,
    };
    known.unwrap_or_else(|| vec![tool.to_owned()])
}

fn claude(tool: &str) -> Option<Vec<String>> {
    // A server name covers all tools of the server.
    if let Some(server) = tool.strip_prefix("mcp__")
        && !server.contains("__")
    {
        return Some(vec![tool.to_owned(), format!("{tool}__*")]);
    }
    match NativeTools::CLAUDE.canonical(tool)? {
        "spawn_agent" => Some(owned(SPAWNING)),
        "exec_command" => Some(owned(COMMANDS)),
        name => Some(owned(&[name])),
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Splits a comma-separated text. A comma in brackets does not separate entries.
#[must_use]
pub fn entries(text: &str) -> Vec<String> {
    let mut entries = Vec::new();
    let mut entry = String::new();
    let mut depth = 0_usize;
    for letter in text.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if letter == ',' && depth == 0 {
            entries.push(std::mem::take(&mut entry));
        } else {
            entry.push(letter);
        }
    }
    entries.push(entry);
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_tools_get_canonical_names() {
        for (format, entry, names) in [
            (ForeignFormat::ClaudeCode, "Bash", &["exec_command", "write_stdin"][..]),
            (ForeignFormat::ClaudeCode, "Write", &["apply_patch"]),
            (ForeignFormat::ClaudeCode, "Task", &["spawn_agent", "spawn_node"]),
            (ForeignFormat::ClaudeCode, "mcp__db__query", &["mcp__db__query"]),
            (ForeignFormat::ClaudeCode, "mcp__db", &["mcp__db", "mcp__db__*"]),
            (ForeignFormat::ClaudeCode, "Skill", &["Skill"]),
            (ForeignFormat::OpenCode, "bash", &["exec_command", "write_stdin"]),
            (ForeignFormat::OpenCode, "mymcp_*", &["mymcp_*"]),
            (ForeignFormat::Copilot, "Read", &["read_file", "view_image"]),
            (ForeignFormat::Copilot, "db/*", &["mcp__db__*"]),
            (ForeignFormat::Copilot, "db/query", &["mcp__db__query"]),
            (ForeignFormat::Gemini, "mcp_*", &["mcp__*"]),
            (ForeignFormat::Gemini, "mcp_db_*", &["mcp__db__*"]),
            (ForeignFormat::Gemini, "replace", &["apply_patch"]),
            (ForeignFormat::Codex, "anything", &["anything"]),
        ] {
            assert_eq!(allowed(format, entry), Allowed::Patterns(owned(names)), "{entry}");
        }
        assert_eq!(allowed(ForeignFormat::Gemini, "*"), Allowed::Everything);
    }

    #[test]
    fn partial_tool_rule_is_never_loosened() {
        let claude = ForeignFormat::ClaudeCode;
        assert!(matches!(allowed(claude, "Bash(git *)"), Allowed::Nothing(_)));
        assert_eq!(
            allowed(claude, "Agent(a, b)"),
            Allowed::Spawn(vec!["a".to_owned(), "b".to_owned()])
        );
        let (patterns, why) = denied(claude, "Bash(rm *)");
        assert_eq!(patterns, ["exec_command", "write_stdin", "Bash"]);
        assert!(why.is_some());
    }

    #[test]
    fn commas_in_brackets_do_not_separate_entries() {
        assert_eq!(entries("Bash(a, b), Read"), ["Bash(a, b)", " Read"]);
        assert_eq!(entries(""), [""]);
        assert_eq!(entries("a),b"), ["a)", "b"]);
    }
}
