//! Properties of every template and every request.

use std::sync::Arc;

use proptest::prelude::*;
use registry_svc::domain::{
    catalog::{Catalog, Level},
    family::{Family, FileText},
    foreign::ForeignFormat,
    graph,
    lint::{self, KnownNames, LintKind, lint_text},
    models::ModelCatalogue,
    name::AgentType,
    prompt::{Mode, SharedTexts},
    resolve::{Inherited, ResolveContext, SpawnRequest, resolve},
    resolved::Resolved,
    role,
    rules::Rules,
    sandbox::Sandbox,
    template::Scope,
};
use tool_policy::{CANONICAL_TOOLS, Layer, MatchMode, Policy};

/// All families of directories.
const FAMILIES: &[Family] = &[
    Family::Roles,
    Family::Agents,
    Family::Graph,
    Family::Foreign(ForeignFormat::ClaudeCode),
    Family::Foreign(ForeignFormat::OpenCode),
    Family::Foreign(ForeignFormat::Copilot),
    Family::Foreign(ForeignFormat::Gemini),
    Family::Foreign(ForeignFormat::Codex),
];

/// Resolves a file of that family as a project's template. Returns `None` if the file is malformed or claims no name.
fn resolve_file(family: Family, text: &str, inherited: Inherited) -> Option<Resolved> {
    let file = FileText {
        path: "/p/stem",
        stem: "stem",
        scope: Scope::Project,
        text: Ok(text),
    };
    let file = family.read(file, &Rules::default()).ok()?;
    let request = SpawnRequest {
        wanted: Some(file.name.clone()),
        agent_name: None,
        model: None,
        effort: None,
        provider: None,
        inherited,
        mode: Mode::Implementation,
        expected_digest: None,
    };
    let texts = SharedTexts {
        system: "s".into(),
        planning: "p".into(),
        implementation: "i".into(),
    };
    let catalog = Catalog::build(&[Level {
        files: vec![Arc::new(file)],
        notes: vec![],
    }]);
    let around = ResolveContext {
        catalog: &catalog,
        models: &ModelCatalogue::default(),
        texts: &texts,
        footer: "",
    };
    resolve(&request, around).ok()
}

fn with_sandbox(sandbox: Sandbox) -> Inherited {
    Inherited {
        sandbox: Some(sandbox),
        ..Inherited::default()
    }
}

fn any_family() -> impl Strategy<Value = Family> {
    proptest::sample::select(FAMILIES)
}

fn any_sandbox() -> impl Strategy<Value = Sandbox> {
    prop_oneof![
        Just(Sandbox::ReadOnly),
        Just(Sandbox::WorkspaceWrite),
        Just(Sandbox::FullAccess)
    ]
}

/// Generates frontmatter from relevant lines and from lines that resemble them.
fn any_frontmatter() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        4 => proptest::sample::select(vec![
            "read_only: true",
            "read_only: false",
            "sandbox: full_access",
            "permissionMode: bypassPermissions",
            "permissionMode: plan",
            "permission: allow",
            "permission: {'*': deny, bash: allow}",
            "model_config: {provider: p, endpoint: 'https://evil', parameters: {a: [1]}}",
            "tools: []",
            "tools: '*'",
            "tools: [wait, exec_command]",
            "tools: Bash, Read, Agent(x)",
            "tools: {'*': false, read: true, wait: true}",
            "tools: {'*': true}",
            "disallowedTools: Bash(rm *)",
            "tool_denylist: apply_patch",
            "allow_list: ['*']",
            "allow_list: [wait, 'exec*']",
            "deny_list: [wait]",
            "grant_list: ['*']",
            "spawn_list: [worker]",
            "reasoning_effort: high",
            "keywords: [a]",
        ]).prop_map(str::to_owned),
        1 => "[a-z_]{3,10}: [a-z\\[\\]]{0,4}",
    ];
    let head = proptest::sample::select(vec![
        "",
        "name: abc\ndescription: d\n",
        "agent_type: abc\ndescription: d\nmodel: m\ncolor: red\n",
        "description: d\n",
    ]);
    (head, proptest::collection::vec(line, 0..4)).prop_map(|(head, lines)| format!("{head}{}", lines.join("\n")))
}

/// Returns a complete file of that family with this frontmatter.
fn file_of(family: Family, yaml: &str) -> String {
    match family {
        Family::Graph => "[template]\ncapabilities = ['edge_management_all', 'spawn_nodes']\n\nprompt".to_owned(),
        Family::Foreign(ForeignFormat::Codex) => {
            "sandbox_mode = 'danger-full-access'\napproval_policy = 'never'\ndeveloper_instructions = 'prompt'\n"
                .to_owned()
        }
        Family::Roles | Family::Agents | Family::Foreign(_) => format!("---\n{yaml}\n---\nprompt"),
    }
}

fn any_tools() -> impl Strategy<Value = Vec<String>> {
    let tool = proptest::sample::select(vec![
        "*",
        "wait",
        "exec_command",
        "exec*",
        "apply_?atch",
        "Bash",
        "read_file",
    ]);
    proptest::collection::vec(tool.prop_map(str::to_owned), 0..3)
}

/// Generates templates with several errors: known, misspelt and repeated keys with fitting and other values.
fn broken_template() -> impl Strategy<Value = String> {
    let keys = prop::sample::select(vec![
        "name",
        "agent_type",
        "description",
        "descripton",
        "model",
        "color",
        "tools",
        "allow_lst",
        "allow_list",
        "deny_list",
        "spawn_list",
        "agent_names",
        "agent_persons",
        "model_config",
        "read_only",
        "reasoning_effort",
        "  tools",
        "- name",
    ]);
    let values = prop::sample::select(vec![
        "",
        "abc",
        "A b",
        "[]",
        "[wait, wait]",
        "[exec_comand]",
        "[*_file]",
        "[reviewr]",
        "[{name: a}]",
        "{provider: ''}",
        "blue",
        "high",
        "true",
        "\n  - name: a\n    modle: m",
    ]);
    let entry = (keys, values).prop_map(|(key, value)| format!("{key}: {value}\n"));
    let body = prop::sample::select(vec![
        "",
        "x",
        "<!-- agent_name: a -->\n",
        "x\n<!-- agent_name: b -->\ny",
    ]);
    (prop::collection::vec(entry, 0..8), body)
        .prop_map(|(entries, body)| format!("---\n{}---\n{body}", entries.concat()))
}

proptest! {
    #[test]
    fn resolution_never_loosens_sandbox(
        family in any_family(),
        yaml in any_frontmatter(),
        sandbox in any_sandbox(),
    ) {
        if let Some(resolved) = resolve_file(family, &file_of(family, &yaml), with_sandbox(sandbox)) {
            prop_assert!(resolved.sandbox.value <= sandbox);
            let is_ours = matches!(family, Family::Roles | Family::Agents);
            if is_ours && yaml.lines().any(|line| line == "read_only: true") {
                prop_assert_eq!(resolved.sandbox.value, Sandbox::ReadOnly);
            }
            // The rules allow no endpoint for a project's template.
            prop_assert_eq!(resolved.endpoint, None);
        }
    }

    #[test]
    fn resolution_never_widens_tools(
        family in any_family(),
        yaml in any_frontmatter(),
        allow in any_tools(),
        deny in any_tools(),
    ) {
        let parent = Policy::compile(vec![Layer {
            origin: "parent".to_owned(),
            mode: MatchMode::Glob,
            allow,
            deny,
        }]).unwrap();
        if let Some(resolved) = resolve_file(family, &file_of(family, &yaml), Inherited::default()) {
            let own = Policy::compile(resolved.tools.into_iter().collect()).unwrap();
            let child = parent.intersect(&own);
            for tool in CANONICAL_TOOLS.iter().chain(&["Bash", "mcp__a__b", "anything"]) {
                prop_assert!(!child.allows(tool) || parent.allows(tool), "{tool}");
                prop_assert!(!child.allows(tool) || own.allows(tool), "{tool}");
            }
            if family != Family::Graph && yaml.lines().any(|line| line == "tools: []") && family != Family::Roles {
                // An empty list in a subagent restricts nothing and causes a warning. In other dialects it allows
                // nothing.
                let is_subagent = resolved.source.is_some_and(|source| source.file.dialect.to_string() == "subagent");
                let is_toml = family == Family::Foreign(ForeignFormat::Codex);
                prop_assert!(is_subagent || is_toml || !child.allows("wait"));
            }
        }
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in "(---\n)?[ -~\n]{0,200}(\n---\n)?[ -~\n]{0,100}") {
        for family in FAMILIES {
            let _ = resolve_file(*family, &text, Inherited::default());
        }
        let _ = graph::parse(&format!("[template]\n{text}"));
    }

    #[test]
    fn no_bytes_make_the_linter_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for kind in [LintKind::Role, LintKind::CodexAgent, LintKind::Graph, LintKind::Foreign] {
            for path in ["a.md", "a.toml", "a.agent.md", ""] {
                let _ = lint_text(path, kind, &bytes, &KnownNames::default());
            }
        }
    }

    #[test]
    fn lint_lines_exist_and_fixes_terminate(text in broken_template()) {
        for kind in [LintKind::Role, LintKind::CodexAgent, LintKind::Graph] {
            let known = KnownNames { roles: Some(Vec::new()), tools: Vec::new() };
            let mut fixed = text.clone();
            for round in 0.. {
                let found = lint_text("a.md", kind, fixed.as_bytes(), &known).diagnostics;
                let end = fixed.lines().count() + 1;
                let lines = found.iter().filter_map(|diagnostic| diagnostic.finding.line);
                prop_assert!(lines.clone().all(|line| (1..=end).contains(&line)), "{:?}", found);
                let Some(next) = lint::fixed(&fixed, &found) else { break };
                prop_assert!(round < 20, "{}\n{:?}", fixed, found);
                fixed = next;
            }
        }
    }

    #[test]
    fn line_endings_do_not_change_result(text in "(---\n[a-z: \n]{0,60}\n---\n)?[a-z<>!: \n-]{0,100}") {
        let name = AgentType::parse("role").unwrap();
        prop_assert_eq!(role::parse(&name, &text), role::parse(&name, &text.replace('\n', "\r\n")));
    }
}
