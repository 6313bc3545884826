use super::{fields::PROMPT, *};
use crate::domain::{diagnostic::Severity, effort::Effort, yaml};

fn run(format: ForeignFormat, text: &str) -> (AgentType, Parsed) {
    read(format, "stem", text).unwrap()
}

fn markdown(format: ForeignFormat, yaml: &str) -> (Template, Vec<Finding>) {
    let (_, parsed) = run(format, &format!("---\nname: abc\ndescription: d\n{yaml}---\nDo it.\n"));
    let template = parsed.template.unwrap_or_else(|why| panic!("{yaml}: {why}"));
    (Template::clone(&template), parsed.findings)
}

fn reported(findings: &[Finding]) -> Vec<(Option<usize>, &str)> {
    findings
        .iter()
        .filter(|finding| finding.message.starts_with("unmapped "))
        .map(|finding| (finding.line, finding.message.as_str()))
        .collect()
}

#[test]
fn format_names_round_trip() {
    for format in ForeignFormat::ALL {
        assert_eq!(
            ForeignFormat::parse(&format!(" {} ", format.as_str().to_uppercase())),
            Some(*format)
        );
    }
    assert_eq!(ForeignFormat::parse("cursor"), None);
}

#[test]
fn file_with_too_many_keys_is_not_an_agent() {
    let words = |count: usize, between: &str| -> String {
        (0..count).map(|number| format!("word{number}{between}1\n")).collect()
    };
    let markdown = |count: usize| format!("---\nname: abc\ndescription: d\n{}---\nx", words(count, ": "));
    let toml = |count: usize| format!("description = 'd'\n{PROMPT} = 'x'\n{}", words(count, " = "));
    let most = fields::MAX_KEYS - 2;
    for (format, few, many, kept) in [
        (ForeignFormat::ClaudeCode, markdown(most), markdown(most + 1), "abc"),
        (ForeignFormat::Codex, toml(most), toml(most + 1), "stem"),
    ] {
        let (_, parsed) = run(format, &few);
        assert!(parsed.template.is_ok(), "{format}");
        assert_eq!(reported(&parsed.findings).len(), most);
        let (name, parsed) = run(format, &many);
        assert_eq!(name.as_str(), kept);
        assert_eq!(parsed.template.unwrap_err().to_string(), "more than 100 keys");
        assert_eq!(parsed.findings.len(), 1);
    }
}

#[test]
fn toml_outside_prompt_is_bounded() {
    let large = "x".repeat(yaml::MAX_BYTES);
    let agent = |prompt: &str, memory: &str| {
        let text = format!("description = 'd'\n{PROMPT} = '{prompt}'\nmemory = '{memory}'\n");
        run(ForeignFormat::Codex, &text).1.template
    };
    assert!(agent(&large, "x").is_ok());
    let why = agent("x", &large).unwrap_err().to_string();
    assert!(
        why.ends_with(" bytes outside developer_instructions; at most 65536 are allowed"),
        "{why}"
    );
}

#[test]
fn claude_code_agent_is_read() {
    let text = "---
name: code-reviewer
description: Reviews code
tools: Read, Grep, Bash(git diff:*, git log:*), Agent(helper), mcp__db
disallowedTools: [Write]
model: sonnet
effort: max
permissionMode: bypassPermissions
mcpServers: {db: {command: evil}}
hooks: {PreToolUse: []}
maxTurns: 5
color: blue
novelty: 1
---

Review.
";
    let (name, parsed) = run(ForeignFormat::ClaudeCode, text);
    assert_eq!(name.as_str(), "code-reviewer");
    let template = parsed.template.unwrap();
    assert_eq!(template.description.as_deref(), Some("Reviews code"));
    assert_eq!(template.default_prompt.as_deref(), Some("Review."));
    assert_eq!(template.model.as_deref(), Some("sonnet"));
    assert_eq!(template.effort, Some(Effort::Xhigh));
    assert!(!template.read_only);
    assert_eq!(
        template.tools.allow,
        [
            "grep_files",
            "mcp__db",
            "mcp__db__*",
            "read_file",
            "spawn_agent",
            "spawn_node"
        ]
    );
    assert_eq!(template.tools.deny, ["Write", "apply_patch"]);
    assert_eq!(template.spawn_list, ["helper"]);
    let reported = reported(&parsed.findings);
    let keys: Vec<_> = reported
        .iter()
        .map(|(line, message)| (line.unwrap(), message.split(' ').nth(1).unwrap()))
        .collect();
    assert_eq!(
        keys,
        [
            (4, "tools"),
            (7, "effort"),
            (8, "permissionMode"),
            (9, "mcpServers"),
            (10, "hooks"),
            (11, "maxTurns"),
            (12, "color"),
            (13, "novelty")
        ]
    );
    assert_eq!(
        reported[3].1,
        "unmapped mcpServers = {\"db\":{\"command\":\"evil\"}}: a template can never start programs"
    );
    assert!(
        parsed
            .findings
            .iter()
            .all(|finding| finding.severity == Severity::Warning)
    );
}

#[test]
fn absent_empty_and_listed_tools_differ() {
    let none: &[&str] = &[];
    let rows: &[(&str, &[&str], &[&str])] = &[
        ("", none, none),
        ("tools: []\n", none, &["*"]),
        ("tools:\n", none, &["*"]),
        ("tools: ''\n", none, &["*"]),
        ("tools: '*'\n", none, none),
        ("tools: [Read, '*']\n", none, none),
        ("tools: Bash(git *)\n", none, &["*"]),
        ("tools: [Read]\n", &["read_file"], none),
        (
            "disallowedTools: Bash(rm *)\n",
            none,
            &["Bash", "exec_command", "write_stdin"],
        ),
        ("disallowedTools: mcp__db\n", none, &["mcp__db", "mcp__db__*"]),
    ];
    for (yaml, allow, deny) in rows {
        let tools = markdown(ForeignFormat::ClaudeCode, yaml).0.tools;
        assert_eq!(tools.allow, *allow, "{yaml:?}");
        assert_eq!(tools.deny, *deny, "{yaml:?}");
    }
}

#[test]
fn permission_mode_can_only_tighten() {
    for (mode, read_only) in [
        ("plan", true),
        ("default", false),
        ("acceptEdits", false),
        ("bypassPermissions", false),
    ] {
        let (template, findings) = markdown(ForeignFormat::ClaudeCode, &format!("permissionMode: {mode}\n"));
        assert_eq!(template.read_only, read_only, "{mode}");
        assert_eq!(findings.len(), usize::from(!read_only), "{mode}");
    }
}

#[test]
fn empty_spawn_list_denies_spawning() {
    let (template, findings) = markdown(ForeignFormat::Copilot, "agents: []\n");
    assert_eq!(template.tools.deny, ["spawn_agent", "spawn_node"]);
    assert_eq!(findings.len(), 1, "the name, which Copilot takes from the file");
    let (template, findings) = markdown(ForeignFormat::Copilot, "agents: ['not a name']\n");
    assert_eq!(template.tools.deny, ["spawn_agent", "spawn_node"]);
    assert_eq!(findings.len(), 2, "the name too");
    let (template, _) = markdown(ForeignFormat::Copilot, "agents: ['*']\n");
    assert_eq!(template.tools.deny, Vec::<String>::new());
}

#[test]
fn open_code_agent_is_read() {
    let text = "---
description: Plans
mode: subagent
model: anthropic/claude-sonnet-4
temperature: 0.2
tools:
  write: false
  edit: false
permission:
  bash: {\"git *\": allow, \"*\": ask}
  webfetch: deny
  read: allow
---
Plan.
";
    let (name, parsed) = run(ForeignFormat::OpenCode, text);
    assert_eq!(name.as_str(), "stem");
    let template = parsed.template.unwrap();
    assert_eq!(template.provider.as_deref(), Some("anthropic"));
    assert_eq!(template.model.as_deref(), Some("claude-sonnet-4"));
    assert_eq!(template.parameters["temperature"], "0.2");
    assert_eq!(template.tools.allow, Vec::<String>::new());
    assert_eq!(
        template.tools.deny,
        [
            "apply_patch",
            "bash",
            "edit",
            "exec_command",
            "web_search",
            "webfetch",
            "write",
            "write_stdin"
        ]
    );
    let reported = reported(&parsed.findings);
    assert_eq!(reported.len(), 2, "{reported:?}");
    assert!(reported[0].1.starts_with("unmapped mode = "));
    assert!(reported[1].1.starts_with("unmapped permission = \"bash\": "));
}

#[test]
fn last_matching_switch_wins() {
    let none: &[&str] = &[];
    let rows: &[(&str, &[&str], &[&str])] = &[
        ("tools: {'*': false, read: true}\n", &["read_file"], none),
        ("tools: {read: true, '*': false}\n", none, &["*"]),
        ("tools: {bash: false, '*': true}\n", none, none),
        (
            "tools: {'*': false, write: true, edit: false}\n",
            &["apply_patch"],
            &["apply_patch", "edit"],
        ),
        ("tools: {'db_*': false, db_read: true}\n", none, &["db_*"]),
        ("permission: deny\n", none, &["*"]),
        ("permission: ask\n", none, &["*"]),
        ("permission: allow\n", none, none),
        ("permission: {'*': deny, read: allow}\n", &["read_file"], none),
        (
            "tools: {'*': false, read: true, grep: true}\npermission: {'*': deny, read: allow}\n",
            &["read_file"],
            none,
        ),
    ];
    for (yaml, allow, deny) in rows {
        let tools = markdown(ForeignFormat::OpenCode, yaml).0.tools;
        assert_eq!(tools.allow, *allow, "{yaml:?}");
        assert_eq!(tools.deny, *deny, "{yaml:?}");
    }
}

#[test]
fn copilot_and_gemini_agents_are_read() {
    let (template, findings) = markdown(
        ForeignFormat::Copilot,
        "tools: [Read, 'db/*', search]\nmodel: gpt-5\ntarget: vscode\n",
    );
    assert_eq!(
        template.tools.allow,
        ["grep_files", "list_dir", "mcp__db__*", "read_file", "view_image"]
    );
    assert_eq!(reported(&findings).len(), 2);

    let (template, findings) = markdown(
        ForeignFormat::Gemini,
        "tools: [read_file, 'mcp_*']\nmodel: inherit\ntemperature: 1\n",
    );
    assert_eq!(template.tools.allow, ["mcp__*", "read_file"]);
    assert_eq!(template.model, None);
    assert_eq!(template.parameters["temperature"], "1");
    assert_eq!(findings, []);
}

#[test]
fn codex_role_is_read() {
    let text = "\u{feff}name = \"researcher\"
description = 'Digs.'
model = \"gpt-5.2\"
model_provider = \"openai\"
model_reasoning_effort = \"high\"
sandbox_mode = \"read-only\"
approval_policy = \"never\"
developer_instructions = \"\"\"
Dig.
\"\"\"

[mcp_servers.db]
command = \"evil\"
";
    let (name, parsed) = run(ForeignFormat::Codex, text);
    assert_eq!(name.as_str(), "researcher");
    let template = parsed.template.unwrap();
    assert_eq!(template.default_prompt.as_deref(), Some("Dig."));
    assert_eq!(template.provider.as_deref(), Some("openai"));
    assert_eq!(template.effort, Some(Effort::High));
    assert!(template.read_only);
    let reported = reported(&parsed.findings);
    let lines: Vec<_> = reported.iter().map(|(line, _)| line.unwrap()).collect();
    assert_eq!(lines, [7, 12], "{reported:?}");

    let (name, parsed) = run(
        ForeignFormat::Codex,
        "description = 'd'\ndeveloper_instructions = 'x'\n",
    );
    assert_eq!(name.as_str(), "stem");
    assert!(parsed.template.is_ok());
}

#[test]
fn malformed_agent_errors_have_reason_and_line() {
    let rows: &[(ForeignFormat, &str, &str, Option<usize>)] = &[
        (
            ForeignFormat::ClaudeCode,
            "Just text.",
            "missing YAML frontmatter delimited by ---",
            None,
        ),
        (
            ForeignFormat::ClaudeCode,
            "---\nname: a\n",
            "unterminated frontmatter: no closing \"---\" line",
            Some(1),
        ),
        (
            ForeignFormat::ClaudeCode,
            "---\ndescription: d\n---\nx",
            "missing field `name`",
            None,
        ),
        (
            ForeignFormat::Gemini,
            "---\nname: not a name\n---\nx",
            "invalid name: \"not a name\" is not an agent_type; use at most 128 letters, digits, - and _",
            Some(2),
        ),
        (
            ForeignFormat::ClaudeCode,
            "---\nname: a\ntools: {Read: true}\n---\nx",
            "tools is not a list of texts or a comma-separated text",
            Some(3),
        ),
        (
            ForeignFormat::OpenCode,
            "---\ntools: [read]\n---\nx",
            "tools is not a mapping from tools to on and off",
            Some(2),
        ),
        (
            ForeignFormat::ClaudeCode,
            "---\nname: a\ndisalowedTools: Bash\n---\nx",
            "unknown key \"disalowedTools\"; did you mean \"disallowedTools\"? A misspelt restriction is an error",
            Some(3),
        ),
        (
            ForeignFormat::Gemini,
            "---\nname: a\ndisallowed_tools: [x]\n---\nx",
            "key \"disallowed_tools\" would restrict nothing here; this dialect has no equivalent key",
            Some(3),
        ),
        (
            ForeignFormat::ClaudeCode,
            "---\nname: a\nname: b\n---\nx",
            "invalid YAML: duplicate field `name`",
            None,
        ),
        (
            ForeignFormat::ClaudeCode,
            "---\nname: a\nspawn_list: [' ']\n---\nx",
            "spawn_list has only blank entries; remove the key or add an entry",
            Some(3),
        ),
    ];
    for (format, text, message, line) in rows {
        let (name, parsed) = run(*format, text);
        let error = parsed.template.unwrap_err().to_string();
        assert!(error.starts_with(message), "{text}: {error}");
        assert!(matches!(name.as_str(), "a" | "stem"), "{text}: {name}");
        let finding = parsed.findings.last().unwrap();
        assert_eq!(finding.severity, Severity::Error);
        if line.is_some() {
            assert_eq!(finding.line, *line, "{text}");
        }
    }
    let (_, parsed) = run(ForeignFormat::Codex, "name = 'a'\nmodel = \n");
    let error = parsed.template.unwrap_err().to_string();
    assert!(error.starts_with("invalid TOML: "), "{error}");
    assert_eq!(parsed.findings[0].line, Some(2));
}

#[test]
fn malformed_foreign_agent_keeps_its_declared_name() {
    for (format, text, expected) in [
        (
            ForeignFormat::ClaudeCode,
            "---\nname: \"Mine\" # my own\ntools: [\n---\nx",
            "mine",
        ),
        (ForeignFormat::Gemini, "---\ndescription: d\nname: mine\n", "mine"),
        (
            ForeignFormat::ClaudeCode,
            "---\nname: no name\ntools: [\n---\nx",
            "stem",
        ),
        (
            ForeignFormat::ClaudeCode,
            "---\nagent_type: mine\ntools: [\n---\nx",
            "stem",
        ),
        (ForeignFormat::OpenCode, "---\nname: mine\ntools: [\n---\nx", "stem"),
        (ForeignFormat::Codex, "name = 'mine' # my own\nmodel = \n", "mine"),
        (ForeignFormat::Codex, "model = \n[memory]\nname = 'other'\n", "stem"),
        (
            ForeignFormat::Codex,
            "developer_instructions = \"\"\"\nname = 'other'\n",
            "stem",
        ),
    ] {
        let (name, parsed) = run(format, text);
        assert!(parsed.template.is_err(), "{text}");
        assert_eq!(name.as_str(), expected, "{text}");
    }
}

#[test]
fn disabled_or_remote_agent_claims_no_name() {
    for (format, yaml) in [
        (ForeignFormat::OpenCode, "disable: true"),
        (ForeignFormat::Gemini, "name: a\nkind: remote"),
    ] {
        let finding = read(format, "stem", &format!("---\n{yaml}\n---\nx")).unwrap_err();
        assert!(finding.message.starts_with("not used: "), "{}", finding.message);
    }
}

#[test]
fn extension_keys_are_read() {
    let (template, findings) = markdown(
        ForeignFormat::ClaudeCode,
        "spawn_list: [Worker]\ngrant_list: [wait]\nkeywords: [b, a]\n",
    );
    assert_eq!(template.spawn_list, ["worker"]);
    assert_eq!(template.grant_list, ["wait"]);
    assert_eq!(template.keywords, ["a", "b"]);
    assert_eq!(findings, []);
}
