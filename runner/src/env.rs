//! The environment of agent programs. It starts empty, so variables that are not listed here do not reach a program. An
//! operator's token or another provider's key cannot reach it either.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Map, Value};
use troupe_proto::common::v1::{ResolvedSpawn, Sandbox};

use crate::{agent::LaunchSpec, outbox::Attempt};

/// The variables that a program inherits from the runner. They do not contain secrets.
const INHERITED: &[&str] = &[
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TZ",
];

/// The name of a thread's worktree, below the thread's state directory.
pub(crate) const WORKTREE: &str = "worktree";
/// The suffix of a file next to the worktree that exists during its creation.
pub(crate) const UNFINISHED: &str = "making";
/// How long the state of a thread without attempts is kept.
const UNNEEDED: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The variables of a program.
pub(crate) type Environment = BTreeMap<String, OsString>;

/// Returns the variables that every program inherits, and every subprocess of the runner.
pub(crate) fn plain(inherited: impl Fn(&str) -> Option<OsString>) -> Environment {
    let known = INHERITED.iter();
    known
        .filter_map(|&name| Some((name.to_owned(), inherited(name)?)))
        .collect()
}

/// Returns the complete environment of a thread's program, without the variables of its kind. It does not contain the
/// thread's token: tool calls go through the runner, which knows its programs, or through an MCP server, and only this
/// server receives the token.
pub(crate) fn environment(launch: &LaunchSpec, inherited: impl Fn(&str) -> Option<OsString>) -> Environment {
    let mut environment = plain(inherited);
    environment.insert("TMPDIR".to_owned(), launch.scratch.clone().into_os_string());
    let resolved = &launch.resolved;
    let facts = [
        ("TROUPE_SESSION_ID", launch.session_id.clone()),
        ("TROUPE_THREAD_ID", launch.attempt.thread_id.clone()),
        ("TROUPE_GENERATION", launch.attempt.generation.to_string()),
        ("TROUPE_DEPTH", launch.depth.to_string()),
        ("TROUPE_AGENT_TYPE", resolved.agent_type.clone()),
        ("TROUPE_AGENT_NAME", resolved.agent_name.clone()),
        ("TROUPE_MODEL", resolved.model.clone()),
        ("TROUPE_REASONING_EFFORT", resolved.reasoning_effort.clone()),
        ("TROUPE_PROVIDER", resolved.provider.clone()),
        ("TROUPE_ENDPOINT", resolved.endpoint.clone()),
        ("TROUPE_PARAMETERS", parameters(resolved)),
        ("TROUPE_SANDBOX", sandbox_name(resolved.sandbox()).to_owned()),
    ];
    environment.extend(
        facts
            .into_iter()
            // A NUL would prevent the program from starting, and the text of a template may contain NULs.
            .filter(|(_, value)| !value.is_empty() && !value.contains('\0'))
            .map(|(name, value)| (name.to_owned(), OsString::from(value))),
    );
    environment
}

/// Returns the parameters that a role sets for its provider, as one JSON object. Empty: none.
fn parameters(resolved: &ResolvedSpawn) -> String {
    if resolved.parameters.is_empty() {
        return String::new();
    }
    let set: Map<String, Value> = resolved
        .parameters
        .iter()
        .map(|(name, text)| (name.clone(), serde_json::from_str(text).unwrap_or_default()))
        .collect();
    Value::Object(set).to_string()
}

/// Adds the variables that an operator grants a program: inherited variables, and variables with given values, which
/// take precedence.
pub(crate) fn add(environment: &mut Environment, inherit: &[String], given: &BTreeMap<String, String>) {
    let inherited = inherit
        .iter()
        .filter_map(|name| Some((name.clone(), std::env::var_os(name)?)));
    environment.extend(inherited);
    environment.extend(given.iter().map(|(name, value)| (name.clone(), value.into())));
}

const fn sandbox_name(sandbox: Sandbox) -> &'static str {
    match sandbox {
        Sandbox::Unspecified => "",
        Sandbox::ReadOnly => "read-only",
        Sandbox::WorkspaceWrite => "workspace-write",
        Sandbox::FullAccess => "full-access",
    }
}

/// Returns whether an id can be the name of a directory. This is true for the ids that the supervisor generates, and
/// false for every id that leads out of the parent directory.
pub(crate) fn is_plain_id(id: &str) -> bool {
    (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Returns the directory where a thread's programs keep files that later attempts need.
pub(crate) fn state_of(root: &Path, thread_id: &str) -> PathBuf {
    root.join(thread_id)
}

/// Removes the state of threads that has not been used for a long time, because a runner is not notified when a session
/// is deleted. State with work that exists nowhere else is kept.
pub(crate) async fn prune(root: &Path) {
    let root = root.to_owned();
    let pruned = tokio::task::spawn_blocking(move || prune_now(&root, UNNEEDED)).await;
    if let Err(error) = pruned {
        tracing::debug!(%error, "the threads' state was not pruned");
    }
}

fn prune_now(root: &Path, unneeded: Duration) {
    let Ok(entries) = fs::read_dir(root) else { return };
    for entry in entries.flatten() {
        let is_old = entry
            .metadata()
            .and_then(|metadata| metadata.modified())
            .is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > unneeded));
        // An unfinished worktree contains no work.
        let worktree = entry.path().join(WORKTREE);
        let has_work = worktree.exists() && !worktree.with_extension(UNFINISHED).exists();
        if is_old && !has_work {
            // The next start retries a failed removal.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Returns the scratch directory of an attempt.
pub(crate) fn scratch_of(root: &Path, attempt: &Attempt) -> PathBuf {
    root.join(format!("{}.{}", attempt.thread_id, attempt.generation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_has_only_listed_variables() {
        let launch = LaunchSpec::of_test(ResolvedSpawn {
            agent_type: "worker".to_owned(),
            model: "bad\0model".to_owned(),
            endpoint: "https://proxy.example".to_owned(),
            parameters: [("temperature".to_owned(), "0.1".to_owned())].into(),
            ..Default::default()
        });
        let parent = |name: &str| match name {
            "PATH" | "TROUPE_OPERATOR_TOKEN" | "OPENAI_API_KEY" => Some(OsString::from("x")),
            _ => None,
        };
        let environment = environment(&launch, parent);
        assert_eq!(environment["TROUPE_ENDPOINT"], "https://proxy.example");
        assert_eq!(environment["TROUPE_PARAMETERS"], r#"{"temperature":0.1}"#);
        let names: Vec<_> = environment.keys().collect();
        assert_eq!(
            names,
            [
                "PATH",
                "TMPDIR",
                "TROUPE_AGENT_TYPE",
                "TROUPE_DEPTH",
                "TROUPE_ENDPOINT",
                "TROUPE_GENERATION",
                "TROUPE_PARAMETERS",
                "TROUPE_SESSION_ID",
                "TROUPE_THREAD_ID",
            ]
        );
    }

    #[test]
    fn only_old_directories_without_work_are_pruned() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("old")).unwrap();
        fs::create_dir_all(directory.path().join("working").join(WORKTREE)).unwrap();
        fs::create_dir_all(directory.path().join("begun").join(WORKTREE)).unwrap();
        fs::write(
            directory.path().join("begun").join(WORKTREE).with_extension(UNFINISHED),
            "",
        )
        .unwrap();
        prune_now(directory.path(), Duration::from_secs(3600));
        assert!(directory.path().join("old").exists());
        let before = std::time::SystemTime::now() - Duration::from_secs(7200);
        for name in ["old", "working", "begun"] {
            let opened = fs::File::open(directory.path().join(name)).unwrap();
            opened.set_modified(before).unwrap();
        }
        prune_now(directory.path(), Duration::from_secs(3600));
        let stays = |name: &str| directory.path().join(name).exists();
        assert!(!stays("old") && stays("working") && !stays("begun"));
    }

    #[test]
    fn id_with_path_separator_is_rejected() {
        assert!(is_plain_id("0190a5a4-6c1e-7b3c-8000-000000000000"));
        assert!(!is_plain_id(""));
        assert!(!is_plain_id("../x"));
        assert!(!is_plain_id(&"a".repeat(65)));
    }
}
