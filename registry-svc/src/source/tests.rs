use super::{temp_tree::TempTree, *};
use crate::domain::{catalog::Entry, name::AgentType};

/// Templates named `who`, one of each dialect. The body is the dialect's name.
const ROLE: &str = "---\ndescription: d\n---\nrole";
const PROFILE: &str = "---\nagent_type: who\ndescription: d\nmodel: m\ncolor: red\n---\nprofile";
const SUBAGENT: &str = "---\nname: who\n---\nsubagent";
const CLAUDE: &str = "---\nname: who\ndescription: d\n---\nclaude";
const GEMINI: &str = "---\nname: who\ndescription: d\n---\ngemini";
const CODEX: &str = "name = 'who'\ndescription = 'd'\ndeveloper_instructions = 'codex'\n";

/// One file of each dialect, in order of precedence. A profile and a subagent share a directory, where the order of
/// file names does not matter.
const LEVEL: &[(&str, &str)] = &[
    (".codex/.agents/who.md", ROLE),
    (".codex/agents/z.md", PROFILE),
    (".codex/agents/a.md", SUBAGENT),
    (".claude/agents/x.md", CLAUDE),
    (".codex/agents/x.toml", CODEX),
];

/// Creates a workspace root with a home and a repository. The directory `a/` of the repository is the working directory
/// of most tests.
fn tree() -> TempTree {
    TempTree::new(&["home", "repo/.git", "repo/a"])
}

fn sources(tree: &TempTree, choice: TemplateOptions) -> Sources {
    Sources::open_with(Some(tree.at("home")), std::slice::from_ref(&tree.base), choice).unwrap()
}

fn view(tree: &TempTree, choice: TemplateOptions, cwd: &str) -> View {
    sources(tree, choice).view(tree.at(cwd).to_str()).unwrap()
}

fn agent<'a>(catalog: &'a Catalog, name: &str) -> Result<&'a Entry, RegistryError> {
    catalog.agent_type(&AgentType::parse(name).unwrap())
}

/// Returns the path of the file that holds the name `who`, followed by the files that it shadows.
fn who(tree: &TempTree, choice: TemplateOptions) -> Vec<String> {
    let view = view(tree, choice, "repo/a");
    let Ok(entry) = agent(&view.catalog, "who") else {
        return Vec::new();
    };
    let root = tree.base.display().to_string();
    let relative = |path: &String| path.trim_start_matches(&root).trim_start_matches('/').to_owned();
    std::iter::once(&entry.file.path)
        .chain(&entry.shadowed)
        .map(relative)
        .collect()
}

fn import() -> TemplateOptions {
    TemplateOptions {
        import: vec![ForeignFormat::ClaudeCode, ForeignFormat::Codex],
        ..TemplateOptions::default()
    }
}

#[test]
fn levels_and_dialects_have_fixed_precedence() {
    let tree = tree();
    let mut expected = Vec::new();
    for base in ["repo/a", "repo", "home"] {
        for (path, text) in LEVEL {
            let path = format!("{base}/{path}");
            tree.write(&path, text);
            expected.push(path);
        }
    }
    assert_eq!(who(&tree, import()), expected);
    // When a file is removed, the next one takes precedence.
    for (gone, path) in expected.clone().iter().enumerate() {
        fs::remove_file(tree.at(path)).unwrap();
        assert_eq!(who(&tree, import()), expected[gone + 1..]);
    }
}

#[test]
fn foreign_agents_are_read_in_import_order() {
    let tree = tree();
    tree.write("repo/.claude/agents/x.md", CLAUDE);
    tree.write("repo/.gemini/agents/x.md", GEMINI);
    assert_eq!(who(&tree, TemplateOptions::default()), Vec::<String>::new());
    let choice = |import| TemplateOptions {
        import,
        ..TemplateOptions::default()
    };
    let (claude, gemini) = (ForeignFormat::ClaudeCode, ForeignFormat::Gemini);
    assert_eq!(who(&tree, choice(vec![claude])), ["repo/.claude/agents/x.md"]);
    assert_eq!(
        who(&tree, choice(vec![gemini, claude, gemini])),
        ["repo/.gemini/agents/x.md", "repo/.claude/agents/x.md"]
    );
}

#[test]
fn project_templates_can_be_disabled() {
    let tree = tree();
    tree.write("repo/.codex/agents/a.md", SUBAGENT);
    tree.write("repo/docs/templates/Own.md", "x");
    tree.write("repo/.codex/collab/codex_system_footer.md", "Project footer.");
    tree.write("home/.codex/.agents/who.md", ROLE);
    let off = || TemplateOptions {
        project_templates: ProjectTemplates::Off,
        ..TemplateOptions::default()
    };
    assert_eq!(who(&tree, off()), ["home/.codex/.agents/who.md"]);
    let view = view(&tree, off(), "repo/a");
    assert!(
        view.catalog
            .role_templates()
            .all(|entry| entry.file.scope == Scope::System)
    );
    assert_ne!(&*view.footer, "Project footer.");
    assert!(matches!(
        sources(&tree, off()).view(Some("/")),
        Err(RegistryError::CwdOutsideRoots { .. })
    ));
}

#[test]
fn user_directories_are_not_project_directories() {
    let tree = tree();
    tree.write("home/.codex/agents/a.md", SUBAGENT);
    let view = view(&tree, TemplateOptions::default(), "home");
    let entry = agent(&view.catalog, "who").unwrap();
    assert_eq!(entry.file.scope, Scope::User);
    assert!(entry.shadowed.is_empty());
}

#[test]
fn worktree_ends_walk() {
    let tree = tree();
    tree.write("repo/.codex/agents/a.md", SUBAGENT);
    tree.write("repo/a/.git", "gitdir: ../.git/worktrees/a");
    assert_eq!(who(&tree, TemplateOptions::default()), Vec::<String>::new());
    tree.write("repo/a/.codex/agents/a.md", SUBAGENT);
    assert_eq!(who(&tree, TemplateOptions::default()), ["repo/a/.codex/agents/a.md"]);
}

#[test]
fn links_out_of_repository_are_not_read() {
    let tree = tree();
    tree.write("home/operator.token", "secret");
    tree.write("home/private/other.md", ROLE);
    tree.write("repo/shared.md", "---\ndescription: d\n---\nshared");
    for (link, target) in [
        ("repo/.codex/collab/codex_system_footer.md", "home/operator.token"),
        ("repo/.codex/.agents/who.md", "home/operator.token"),
        ("repo/.codex/.agents/own.md", "repo/shared.md"),
        ("repo/.codex/agents", "home/private"),
    ] {
        tree.link(tree.at(target), link);
    }
    let view = view(&tree, TemplateOptions::default(), "repo/a");
    assert!(!view.footer.contains("secret"));
    let entry = |name: &str| agent(&view.catalog, name);
    let leak = entry("who").unwrap();
    assert!(leak.template().is_err());
    assert_eq!(leak.file.digest, None);
    assert!(entry("own").unwrap().template().is_ok());
    assert!(entry("other").is_err());
}

#[test]
fn hidden_directories_are_not_read() {
    let tree = tree();
    tree.write("home/data/operator.token", "secret");
    tree.write("home/data/other.md", ROLE);
    // A home that is a repository is the boundary of every project in it.
    fs::create_dir(tree.at("home/.git")).unwrap();
    let footer = "home/.codex/collab/codex_system_footer.md";
    for link in [footer, "home/project/.codex/.agents/who.md"] {
        tree.link(tree.at("home/data/operator.token"), link);
    }
    tree.link(tree.at("home/data"), "home/.codex/.agents");
    let shown = |hidden: Vec<PathBuf>| {
        let choice = TemplateOptions {
            hidden,
            ..TemplateOptions::default()
        };
        let view = view(&tree, choice, "home/project");
        let role = |name: &str| agent(&view.catalog, name).is_ok_and(|entry| entry.template().is_ok());
        (view.footer.contains("secret"), role("who"), role("other"))
    };
    assert_eq!(
        shown(Vec::new()),
        (true, true, true),
        "a link in the home may lead to any place in it"
    );
    assert_eq!(shown(vec![tree.at("home/data")]), (false, false, false));
}

#[test]
fn linked_directory_is_read_once() {
    let tree = tree();
    tree.write("repo/.codex/agents/a.md", SUBAGENT);
    tree.link("../.codex/agents", "repo/.claude/agents");
    assert_eq!(who(&tree, import()), ["repo/.codex/agents/a.md"]);
}

#[test]
fn project_endpoint_needs_permission_and_user_one_does_not() {
    let text = "---\nname: who\nmodel_config: {endpoint: 'https://e'}\n---\nx";
    let tree = tree();
    let endpoint = |choice: TemplateOptions| {
        let view = view(&tree, choice, "repo/a");
        let entry = agent(&view.catalog, "who").unwrap();
        entry.template().unwrap().endpoint.clone()
    };
    tree.write("home/.codex/agents/a.md", text);
    assert_eq!(endpoint(TemplateOptions::default()).as_deref(), Some("https://e"));
    tree.write("repo/.codex/agents/a.md", text);
    assert_eq!(endpoint(TemplateOptions::default()), None);
    let allowed = TemplateOptions {
        rules: Rules::new(&["https://e/".to_owned()]),
        ..TemplateOptions::default()
    };
    assert_eq!(endpoint(allowed).as_deref(), Some("https://e"));
}

/// An alias bomb of about 400 bytes.
fn bomb() -> String {
    let mut yaml = format!("a: &a [{}]\n", ["x"; 9].join(","));
    for (level, below) in ('b'..='i').zip('a'..) {
        let aliases = vec![format!("*{below}"); 9].join(",");
        yaml.push_str(&format!("{level}: &{level} [{aliases}]\n"));
    }
    format!("---\n{yaml}---\nbody")
}

#[test]
fn alias_bombs_do_not_hide_valid_roles() {
    let tree = tree();
    let bomb = bomb();
    for number in 0..1_990 {
        tree.write(&format!("repo/.codex/.agents/b{number}.md"), &bomb);
    }
    tree.write("repo/.codex/.agents/who.md", ROLE);
    let sources = sources(&tree, TemplateOptions::default());
    let cwd = tree.at("repo/a");
    let catalog = sources.view(cwd.to_str()).unwrap().catalog;
    // Each file is parsed once.
    assert_eq!(sources.directories.parsed(), 1_991);
    assert!(agent(&catalog, "who").unwrap().template().is_ok());
    let of_bombs = catalog
        .diagnostics()
        .iter()
        .filter(|diagnostic| diagnostic.path.contains("/b"));
    assert!(of_bombs.clone().count() >= 1_990);
    for diagnostic in of_bombs {
        let message = &diagnostic.finding.message;
        assert!(
            message.contains("aliases expand the text to over 4 times its size"),
            "{message}"
        );
    }
}

#[test]
fn files_over_work_budget_are_rejected_in_order() {
    let tree = tree();
    // Files of plain YAML. 35 of them use up the budget.
    let large = format!("---\ndescription: {}\n---\nbody", "x".repeat(60_000));
    for number in 10..60 {
        tree.write(&format!("repo/.codex/.agents/r{number}.md"), &large);
    }
    let sources = sources(&tree, TemplateOptions::default());
    let cwd = tree.at("repo/a");
    for _ in 0..2 {
        let catalog = sources.view(cwd.to_str()).unwrap().catalog;
        for number in 10..60 {
            let entry = agent(&catalog, &format!("r{number}")).unwrap();
            let template = entry.template().map(|_| ());
            // A rejected file still holds its name, because the files that it shadows may have fewer restrictions.
            assert_eq!(template.is_ok(), number < 45, "r{number}: {template:?}");
        }
        let refused = catalog.diagnostics().iter();
        let refused = refused.filter(|diagnostic| diagnostic.finding.message.contains("use up the parsing budget"));
        let paths: Vec<_> = refused.map(|diagnostic| diagnostic.path.clone()).collect();
        assert_eq!(paths.len(), 15, "{paths:?}");
        assert!(paths[0].ends_with("/r45.md"));
    }
    // A smaller file leaves more of the budget to the next ones.
    tree.write("repo/.codex/.agents/r10.md", ROLE);
    let catalog = sources.view(cwd.to_str()).unwrap().catalog;
    assert!(agent(&catalog, "r45").unwrap().template().is_ok());
}

#[test]
fn abandoned_call_reads_no_further_file() {
    let tree = tree();
    for number in 0..10 {
        tree.write(&format!("repo/.codex/.agents/r{number}.md"), ROLE);
    }
    let sources = sources(&tree, TemplateOptions::default());
    let cwd = tree.at("repo/a");
    let abandoned = CancellationToken::new();
    abandoned.cancel();
    let view = sources.view_for(cwd.to_str(), &abandoned);
    assert!(matches!(view, Err(RegistryError::Abandoned)));
    assert_eq!(sources.directories.parsed(), 0);
    // The incomplete result is not cached for other calls.
    let view = sources.view(cwd.to_str()).unwrap();
    assert_eq!(sources.directories.parsed(), 10);
    assert!(agent(&view.catalog, "r9").is_ok());
}

#[cfg(target_os = "linux")]
mod cached_view {
    use super::*;

    /// Returns a scanned view and, directly after the scan, the cached view. Tries several times, because a guard
    /// expires soon and the machine may be busy.
    fn scanned_and_cached(sources: &Sources, cwd: Option<&str>) -> Option<(View, View)> {
        (0..10).find_map(|_| Some((sources.view(cwd).unwrap(), sources.cached_view(cwd)?)))
    }

    #[test]
    fn unchanged_view_is_served_without_a_scan() {
        let tree = tree();
        tree.write("repo/.codex/agents/a.md", SUBAGENT);
        tree.write("home/.codex/collab/codex_system_footer.md", "User footer.");
        let sources = sources(&tree, TemplateOptions::default());
        let cwd = tree.at("repo/a").display().to_string();
        for cwd in [Some(cwd.as_str()), None] {
            assert!(sources.cached_view(cwd).is_none(), "no scan yet");
            let (scanned, cached) = scanned_and_cached(&sources, cwd).unwrap();
            assert!(Arc::ptr_eq(&scanned.catalog, &cached.catalog));
            assert!(Arc::ptr_eq(&scanned.footer, &cached.footer));
        }
        tree.write("repo/.codex/agents/a.md", SUBAGENT);
        assert!(sources.cached_view(Some(&cwd)).is_none());
    }

    #[test]
    fn file_with_two_names_is_not_cached() {
        let tree = tree();
        tree.write("home/.codex/agents/a.md", SUBAGENT);
        let sources = sources(&tree, TemplateOptions::default());
        assert!(scanned_and_cached(&sources, None).is_some());
        fs::hard_link(tree.at("home/.codex/agents/a.md"), tree.at("twin.md")).unwrap();
        tree.write("home/.codex/agents/b.md", ROLE);
        assert!(scanned_and_cached(&sources, None).is_none());
    }
}

#[test]
fn agents_in_folders_are_read_and_changes_detected() {
    let tree = tree();
    let choice = || TemplateOptions {
        import: vec![ForeignFormat::OpenCode, ForeignFormat::ClaudeCode],
        ..TemplateOptions::default()
    };
    let text = |what: &str| format!("---\ndescription: d\n---\n{what}");
    tree.write("repo/.opencode/agents/top.md", text("top"));
    tree.write("repo/.opencode/agent/review/deep/who.md", text("deep"));
    tree.write("repo/.claude/agents/folder/who.md", CLAUDE);
    tree.link(tree.at("../outside"), "repo/.opencode/agents/away");
    tree.write("../outside/stranger.md", text("x"));
    let sources = sources(&tree, choice());
    let cwd = tree.at("repo/a");
    let foreign = || {
        let view = sources.view(cwd.to_str()).unwrap();
        let all = view.catalog.agent_types();
        let foreign = all.filter(|entry| entry.file.scope == Scope::Project);
        foreign.map(|entry| entry.file.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(foreign(), ["review-deep-who", "top"]);
    tree.write("repo/.opencode/agents/review/deep/new.md", text("new"));
    assert_eq!(foreign(), ["review-deep-new", "review-deep-who", "top"]);
    fs::remove_dir_all(tree.at("repo/.opencode/agent/review")).unwrap();
    assert_eq!(foreign(), ["review-deep-new", "top"]);
    for count in 0..=directory::MAX_FOLDERS {
        fs::create_dir_all(tree.at(&format!("repo/.opencode/agents/f{count}"))).unwrap();
    }
    assert!(foreign().is_empty(), "no agents are read instead of an arbitrary part");
}
