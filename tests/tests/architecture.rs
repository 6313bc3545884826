//! The architecture rule, held by CI: nothing points back, and every `domain/` is pure.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// The workspace's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every Rust file below a directory.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The code of a file without its comments and its unit tests, which may use what they like.
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
fn every_domain_is_pure() {
    // Runtimes, wires, stores, clocks, disks, randomness.
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
    ];
    // Their order differs from run to run; what only looks up may have them.
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
fn no_crate_points_back() {
    // What each crate may use of ours; a new crate needs a row.
    let may_use: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("proto", &[][..]),
        ("tool-policy", &[]),
        ("svc-kit", &["troupe-proto"]),
        ("registry-svc", &["svc-kit", "tool-policy", "troupe-proto"]),
        ("supervisor-svc/core", &["tool-policy"]),
        (
            "supervisor-svc/log",
            &["supervisor-core", "svc-kit", "tool-policy", "troupe-proto"],
        ),
        (
            "supervisor-svc",
            &[
                "supervisor-core",
                "supervisor-log",
                "svc-kit",
                "tool-policy",
                "troupe-proto",
            ],
        ),
        ("runner", &["svc-kit", "tool-policy", "troupe-proto"]),
        (
            "cli",
            &[
                "registry-svc",
                "supervisor-core",
                "supervisor-log",
                "supervisor-svc",
                "svc-kit",
                "tool-policy",
                "troupe-proto",
                "troupe-runner",
            ],
        ),
        (
            "tests",
            &[
                "registry-svc",
                "supervisor-core",
                "supervisor-log",
                "supervisor-svc",
                "svc-kit",
                "tool-policy",
                "troupe-proto",
                "troupe-runner",
            ],
        ),
    ]);
    let ours = [
        "troupe-proto",
        "tool-policy",
        "svc-kit",
        "registry-svc",
        "supervisor-core",
        "supervisor-log",
        "supervisor-svc",
        "troupe-runner",
        "troupe-cli",
    ];
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let members = manifest.lines().find(|line| line.starts_with("members")).unwrap();
    let mut broken = Vec::new();
    for (directory, allowed) in &may_use {
        assert!(
            members.contains(&format!("\"{directory}\"")),
            "{directory} is no member"
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
            "{directory} leaves the workspace's lints"
        );
    }
}

#[test]
fn yaml_is_read_behind_one_module_a_crate() {
    // serde_yaml is archived upstream: it must be possible to replace it in one commit.
    let mut users: Vec<String> = [
        "registry-svc/src",
        "supervisor-svc/log/src",
        "supervisor-svc/src",
        "runner/src",
        "svc-kit/src",
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
            "registry-svc/src/domain/yaml.rs",
            "runner/src/programs.rs",
            "svc-kit/src/settings.rs"
        ]
    );
}

#[test]
fn the_supervisor_reads_one_clock() {
    // Reproducible histories depend on it: all times in a log come from the clock that a supervisor is given.
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
