//! The rules of the architecture: permitted dependencies between crates, pure domain code, and no import cycles.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use troupe_tests::page::{root, sources};

/// Returns the code of a file without its comments and its unit tests, which the rules do not cover.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let rules = text.split("#[cfg(test)]").next().unwrap_or_default();
    rules
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn domain_code_is_pure() {
    // Runtimes, protocols, stores, clocks, disks and random numbers.
    const FORBIDDEN: &[&str] = &[
        "tokio",
        "tonic",
        "prost",
        "rusqlite",
        "tracing",
        "troupe_proto",
        "svc_kit",
        "SystemTime",
        "Instant::now",
        "Uuid::now",
        "Uuid::new",
        "std::fs",
        "std::env",
        "std::net",
        "std::thread",
        "getrandom",
        "clap",
    ];
    // Their iteration order differs from run to run. Code that only looks up keys may use them.
    const UNORDERED: &[&str] = &["HashMap", "HashSet"];
    let pure = ["supervisor-svc/core/src", "registry-svc/src/domain", "tool-policy/src"];
    let mut broken = Vec::new();
    for directory in pure {
        let files = sources(&root().join(directory));
        assert!(!files.is_empty(), "{directory} has no sources");
        for path in files {
            let code = code(&path);
            let ordered: &[&str] = if directory == "tool-policy/src" { &[] } else { UNORDERED };
            for word in FORBIDDEN.iter().chain(ordered) {
                if code.contains(word) {
                    broken.push(format!("{} names {word}", path.display()));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn crates_depend_only_on_permitted_crates() {
    let all = &[
        "a2a-svc",
        "registry-svc",
        "supervisor-core",
        "supervisor-log",
        "supervisor-svc",
        "svc-kit",
        "tool-policy",
        "troupe-client",
        "troupe-proto",
        "troupe-runner",
    ][..];
    // The crates of this repository that each crate may use. A new crate needs a row.
    let may_use: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("proto", &[][..]),
        ("tool-policy", &[]),
        ("client", &["troupe-proto"]),
        ("svc-kit", &["troupe-client", "troupe-proto"]),
        (
            "registry-svc",
            &["svc-kit", "tool-policy", "troupe-client", "troupe-proto"],
        ),
        ("supervisor-svc/core", &["tool-policy"]),
        (
            "supervisor-svc/log",
            &[
                "supervisor-core",
                "svc-kit",
                "tool-policy",
                "troupe-client",
                "troupe-proto",
            ],
        ),
        (
            "supervisor-svc",
            &[
                "supervisor-core",
                "supervisor-log",
                "svc-kit",
                "tool-policy",
                "troupe-client",
                "troupe-proto",
            ],
        ),
        ("a2a-proto", &[]),
        (
            "runner",
            &["a2a-proto", "svc-kit", "tool-policy", "troupe-client", "troupe-proto"],
        ),
        ("a2a-svc", &["a2a-proto", "svc-kit", "troupe-client", "troupe-proto"]),
        ("cli", all),
        ("tests", all),
    ]);
    let ours = [
        "troupe-proto",
        "troupe-client",
        "tool-policy",
        "svc-kit",
        "registry-svc",
        "supervisor-core",
        "supervisor-log",
        "supervisor-svc",
        "a2a-proto",
        "troupe-runner",
        "a2a-svc",
        "troupe-cli",
    ];
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = manifest.lines().find(|line| line.starts_with("members")).unwrap();
    let mut broken = Vec::new();
    for (directory, allowed) in &may_use {
        assert!(
            members.contains(&format!("\"{directory}\"")),
            "{directory} is not a member"
        );
        let manifest = fs::read_to_string(root().join(directory).join("Cargo.toml")).unwrap();
        for dependency in ours {
            let used = manifest
                .lines()
                .any(|line| line.starts_with(&format!("{dependency}.")) || line.starts_with(&format!("{dependency} ")));
            if used && !allowed.contains(&dependency) {
                broken.push(format!("{directory} uses {dependency}"));
            }
        }
    }
    assert_eq!(
        members.matches('"').count() / 2,
        may_use.len(),
        "a crate without a row: {members}"
    );
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn no_crate_has_unsafe_code() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(manifest.contains("unsafe_code = \"forbid\""));
    for directory in [
        "proto",
        "client",
        "tool-policy",
        "svc-kit",
        "registry-svc",
        "supervisor-svc/core",
        "supervisor-svc/log",
        "supervisor-svc",
        "runner",
        "cli",
        "tests",
    ] {
        let roots = ["src/lib.rs", "src/main.rs"].map(|name| root().join(directory).join(name));
        for path in roots.iter().filter(|path| path.exists()) {
            let text = fs::read_to_string(path).unwrap();
            assert!(text.contains("#![forbid(unsafe_code)]"), "{}", path.display());
        }
        let manifest = fs::read_to_string(root().join(directory).join("Cargo.toml")).unwrap();
        assert!(
            manifest.contains("[lints]\nworkspace = true"),
            "{directory} does not use the workspace's lints"
        );
    }
}

#[test]
fn yaml_is_read_in_one_module_per_crate() {
    // serde_yaml is archived upstream, so it must be possible to replace it in one commit.
    let mut users: Vec<String> = [
        "registry-svc/src",
        "supervisor-svc/log/src",
        "supervisor-svc/src",
        "runner/src",
        "svc-kit/src",
        "client/src",
        "cli/src",
    ]
    .iter()
    .flat_map(|directory| sources(&root().join(directory)))
    .filter(|path| code(path).contains("serde_yaml::"))
    .map(|path| path.strip_prefix(root()).unwrap().display().to_string())
    .collect();
    users.sort();
    assert_eq!(
        users,
        [
            "cli/src/ui/mod.rs",
            "client/src/contexts.rs",
            "registry-svc/src/domain/yaml.rs",
            "runner/src/programs.rs",
            "supervisor-svc/src/prices.rs",
            "svc-kit/src/settings.rs"
        ]
    );
}

#[test]
fn supervisor_reads_only_its_configured_clock() {
    // Reproducible simulations depend on this: all times in a log come from the clock in a supervisor's configuration.
    let readers: Vec<String> = [
        "supervisor-svc/core/src",
        "supervisor-svc/log/src",
        "supervisor-svc/src",
    ]
    .iter()
    .flat_map(|directory| sources(&root().join(directory)))
    .filter(|path| {
        let code = code(path);
        code.contains("SystemTime::now") || code.contains("Uuid::now_v7")
    })
    .map(|path| path.strip_prefix(root()).unwrap().display().to_string())
    .collect();
    assert_eq!(readers, ["supervisor-svc/src/clock.rs"]);
}

/// Returns the module of each source file of a crate, as a path of names. The crate's root is the empty path.
fn modules(src: &Path) -> BTreeMap<Vec<String>, PathBuf> {
    let mut found = BTreeMap::new();
    for path in sources(src) {
        let relative = path.strip_prefix(src).unwrap().with_extension("");
        let mut names: Vec<String> = relative.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
        let is_root = names.len() == 1 && ["lib", "main"].contains(&names[0].as_str());
        if is_root || names.last().is_some_and(|name| name == "mod") {
            names.pop();
        }
        found.insert(names, path);
    }
    found
}

/// Splits the tree of a `use` item into its paths: `a::{b, c::d}` into `a::b` and `a::c::d`.
fn paths(tree: &str) -> Vec<String> {
    let Some((prefix, rest)) = tree.split_once('{') else {
        return vec![tree.trim().to_owned()];
    };
    let inner = rest.trim_end().strip_suffix('}').unwrap_or(rest);
    let (mut found, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, character) in inner.char_indices().chain([(inner.len(), ',')]) {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = inner[start..at].trim();
                if !part.is_empty() {
                    found.extend(paths(part).into_iter().map(|path| format!("{}{path}", prefix.trim())));
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    found
}

/// Returns the paths into its own crate in a module's code: the paths of its `use` items, and qualified names.
fn own_paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = String::new();
    for item in code.split_inclusive(';') {
        match item
            .rfind("use ")
            .filter(|at| item.ends_with(';') && !item[*at..].contains('('))
        {
            Some(at) => found.extend(paths(item[at + 4..].trim_end_matches(';'))),
            None => rest.push_str(item),
        }
    }
    for root in ["crate::", "super::"] {
        for (at, _) in rest.match_indices(root) {
            let end = rest[at..].find(|character: char| !(character.is_alphanumeric() || "_:".contains(character)));
            found.push(rest[at..].split_at(end.unwrap_or(rest.len() - at)).0.to_owned());
        }
    }
    found.retain(|path| ["crate", "self", "super"].contains(&path.split("::").next().unwrap_or_default()));
    found
}

/// Returns the module that a path in module `from` refers to: the longest existing prefix.
fn target<T>(from: &[String], path: &str, modules: &BTreeMap<Vec<String>, T>) -> Vec<String> {
    let mut at = from.to_vec();
    for (index, name) in path.split("::").map(str::trim).enumerate() {
        match name {
            "crate" if index == 0 => at.clear(),
            "self" => {}
            "super" => drop(at.pop()),
            name => {
                at.push(name.to_owned());
                if !modules.contains_key(&at) {
                    at.pop();
                    break;
                }
            }
        }
    }
    at
}

/// Returns the imports between modules with the same parent, each with one file that causes it. An import of or from a
/// nested module counts for the outer module. Imports between parent and child do not count.
fn sibling_imports(src: &Path) -> BTreeMap<Vec<String>, BTreeMap<Vec<String>, PathBuf>> {
    let modules = modules(src);
    let mut imports: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    for (from, file) in &modules {
        for path in own_paths(&code(file)) {
            let to = target(from, &path, &modules);
            let common = from.iter().zip(&to).take_while(|(one, other)| one == other).count();
            if common < from.len() && common < to.len() {
                let (from, to) = (from[..=common].to_vec(), to[..=common].to_vec());
                imports.entry(from).or_default().insert(to, file.clone());
            }
        }
    }
    imports
}

#[test]
fn modules_have_no_import_cycles() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = manifest.lines().find(|line| line.starts_with("members")).unwrap();
    let mut cycles = Vec::new();
    for member in members.split('"').skip(1).step_by(2) {
        let src = root().join(member).join("src");
        let mut imports = sibling_imports(&src);
        assert!(src.join("lib.rs").exists() || src.join("main.rs").exists(), "{member}");
        // Every module of a cycle imports another module of the cycle and is imported by one.
        loop {
            let importing: BTreeSet<_> = imports.keys().cloned().collect();
            let imported: BTreeSet<_> = imports.values().flat_map(BTreeMap::keys).cloned().collect();
            imports.retain(|from, _| imported.contains(from));
            for targets in imports.values_mut() {
                targets.retain(|to, _| importing.contains(to));
            }
            imports.retain(|_, targets| !targets.is_empty());
            if imports.keys().eq(&importing) {
                break;
            }
        }
        for (from, targets) in imports {
            for (to, file) in targets {
                let file = file.strip_prefix(root()).unwrap().display().to_string();
                cycles.push(format!("{member}: {} -> {} in {file}", from.join("::"), to.join("::")));
            }
        }
    }
    assert!(cycles.is_empty(), "{cycles:#?}");
}

#[test]
fn files_on_the_architecture_page_exist() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let named: Vec<&str> = page
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|text| text.starts_with("supervisor-svc/"))
        .collect();
    assert!(named.len() > 20, "{named:?}");
    let missing: Vec<&&str> = named.iter().filter(|path| !root().join(path).exists()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
