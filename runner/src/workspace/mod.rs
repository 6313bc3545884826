//! The tools that work in a thread's directory. The runner executes them as its own user. A call must pass three
//! checks: its path is in the directory, the thread is not read-only if the tool writes, and the supervisor allows the
//! call. Nothing is changed before that.
//!
//! The directory is a boundary for paths, not for commands: a command can do anything that its user can. Therefore a
//! read-only thread has no commands.

mod changes;
mod command;
mod files;
mod place;
mod snapshot;

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use troupe_proto::{common::v1::Sandbox, reason::Reason};

pub(crate) use self::changes::{Changes, FileContent, MAX_DIFF_BYTES};
use self::place::{FinalLink, Place, failure};
pub(crate) use self::snapshot::{Difference, Snapshot, Snapshots};
use crate::{
    agent::LaunchSpec,
    confinement::SecretMasks,
    env::{Environment, environment},
    tool_line::{WorkspaceCall, WorkspaceTool},
    tools::{ToolAnswer, ToolFailure},
};

/// The directory and the restrictions of one thread's tools.
#[derive(Debug)]
pub(crate) struct Workspace {
    root: PathBuf,
    is_read_only: bool,
    /// The environment of commands: the environment of the thread's program without the variables that the program's
    /// kind adds and the operator grants.
    environment: Environment,
    /// Hides paths from commands.
    secret_masks: SecretMasks,
    command_limit: Duration,
}

impl Workspace {
    /// Returns the workspace of a thread. `command_limit` is the time limit of its commands.
    pub(crate) fn of(launch: &LaunchSpec, command_limit: Duration) -> Self {
        Self {
            root: launch.directory().to_owned(),
            is_read_only: launch.resolved.sandbox() == Sandbox::ReadOnly,
            environment: environment(launch, |name| std::env::var_os(name)),
            secret_masks: SecretMasks::of(launch),
            command_limit,
        }
    }

    /// Returns the content of a file in the workspace, at most 1 MiB.
    pub(crate) async fn content(&self, path: String) -> Result<Vec<u8>, ToolFailure> {
        let root = self.root.clone();
        blocking(move || {
            let place = Place::find(&root, &path, FinalLink::Followed)?;
            files::bytes(&place).map_err(|error| failure(&path, &error))
        })
        .await
    }

    /// Returns the targets of these paths. A program reports the paths that its model used, and a link may lead out of
    /// the workspace, or from a writable path to a protected one.
    pub(crate) async fn followed(self: &Arc<Self>, paths: Vec<String>) -> Vec<String> {
        let (workspace, given) = (Arc::clone(self), paths.clone());
        let followed = spawn_blocking(move || {
            let followed = paths.iter().map(|path| place::followed(&workspace.root, path));
            followed.collect::<Vec<_>>()
        });
        followed.await.unwrap_or(given)
    }

    /// Resolves a call and checks whether the workspace permits it. Changes nothing.
    pub(crate) async fn prepare(self: &Arc<Self>, call: WorkspaceCall) -> Result<Prepared, ToolFailure> {
        let workspace = Arc::clone(self);
        blocking(move || {
            let ending = match call.tool {
                WorkspaceTool::DeleteFile => FinalLink::Itself,
                WorkspaceTool::Command
                | WorkspaceTool::ReadFile
                | WorkspaceTool::WriteFile
                | WorkspaceTool::ListFiles => FinalLink::Followed,
            };
            let place = Place::find(&workspace.root, &call.path, ending)?;
            workspace.permit(call.tool, &place)?;
            Ok(Prepared { workspace, call, place })
        })
        .await
    }

    fn permit(&self, tool: WorkspaceTool, place: &Place) -> Result<(), ToolFailure> {
        let text = match tool {
            _ if !self.is_read_only => return Ok(()),
            WorkspaceTool::ReadFile | WorkspaceTool::ListFiles => return Ok(()),
            WorkspaceTool::Command => "runCommands capability is disabled",
            WorkspaceTool::WriteFile | WorkspaceTool::DeleteFile if place.is_in_docs() => {
                "writeDocs capability is disabled"
            }
            WorkspaceTool::WriteFile | WorkspaceTool::DeleteFile => "writeCode capability is disabled",
        };
        Err(ToolFailure::new(Reason::ToolDenied, text))
    }
}

/// A call that the workspace allows.
#[derive(Debug)]
pub(crate) struct Prepared {
    workspace: Arc<Workspace>,
    call: WorkspaceCall,
    place: Place,
}

impl Prepared {
    /// Returns the tool's name in the line protocol.
    pub(crate) const fn tool(&self) -> &'static str {
        self.call.tool.name()
    }

    /// Returns the paths that the call would write. They begin with the workspace's path, in which links
    /// are not resolved. Links within the workspace are resolved.
    pub(crate) fn written(&self) -> Vec<String> {
        match self.call.tool {
            WorkspaceTool::WriteFile | WorkspaceTool::DeleteFile => {
                let path = self.workspace.root.join(self.place.inside());
                vec![path.to_string_lossy().into_owned()]
            }
            WorkspaceTool::Command | WorkspaceTool::ReadFile | WorkspaceTool::ListFiles => Vec::new(),
        }
    }

    /// Returns the arguments for the supervisor's decision: the complete call, with the resolved path in the workspace.
    pub(crate) fn arguments(&self) -> Value {
        let path = self.place.inside();
        let text = &self.call.text;
        match self.call.tool {
            WorkspaceTool::Command => json!({"cmd": text, "cwd": path}),
            WorkspaceTool::ReadFile | WorkspaceTool::ListFiles | WorkspaceTool::DeleteFile => json!({"path": path}),
            WorkspaceTool::WriteFile => json!({"path": path, "content": text}),
        }
    }

    /// Executes the call. Dropping the future kills a command, but a started file operation completes.
    pub(crate) async fn perform(self) -> ToolAnswer {
        let Self { workspace, call, place } = self;
        let work: fn(&Place, &WorkspaceCall) -> io::Result<Value> = match call.tool {
            WorkspaceTool::Command => {
                let shell = command::shell(&call.text, place.path(), workspace.environment.clone());
                let shell = workspace.secret_masks.apply(shell);
                return command::run(shell, &call.text, workspace.command_limit).await;
            }
            WorkspaceTool::ReadFile => |place, _| files::read(place),
            WorkspaceTool::WriteFile => |place, call| {
                files::write(place, &call.text)?;
                Ok(json!({"output": format!("wrote {}", call.path)}))
            },
            WorkspaceTool::ListFiles => |place, _| files::list(place),
            WorkspaceTool::DeleteFile => |place, call| {
                files::delete(place)?;
                Ok(json!({"output": format!("deleted {}", call.path)}))
            },
        };
        blocking(move || work(&place, &call).map_err(|error| failure(&call.path, &error))).await
    }
}

/// Runs a blocking disk operation on a separate thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ToolFailure> + Send + 'static,
) -> Result<T, ToolFailure> {
    spawn_blocking(work)
        .await
        .unwrap_or_else(|defect| Err(ToolFailure::local(format!("internal error of the runner: {defect}"))))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use troupe_proto::common::v1::ResolvedSpawn;

    use super::*;

    pub(super) fn workspace(directory: &tempfile::TempDir, sandbox: Sandbox) -> Arc<Workspace> {
        let resolved = ResolvedSpawn {
            sandbox: sandbox.into(),
            ..Default::default()
        };
        let launch = LaunchSpec {
            working_directory: Some(directory.path().to_owned()),
            ..LaunchSpec::of_test(resolved)
        };
        Arc::new(Workspace::of(&launch, Duration::from_secs(3600)))
    }

    #[tokio::test]
    async fn path_resolves_to_link_target() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["real/docs", "real/src"] {
            std::fs::create_dir_all(directory.path().join(name)).unwrap();
        }
        let link = |to: &str, from: &str| std::os::unix::fs::symlink(to, directory.path().join(from)).unwrap();
        link("../src", "real/docs/examples");
        link("/etc", "real/docs/etc");
        link("real", "named");
        let mut workspace = workspace(&directory, Sandbox::WorkspaceWrite);
        Arc::get_mut(&mut workspace).unwrap().root = directory.path().join("named");
        let at = |path: &str| directory.path().join("named").join(path).display().to_string();
        for (written, place) in [
            (at("docs/a.md"), at("docs/a.md")),
            (at("docs/examples/new/a.rs"), at("src/new/a.rs")),
            (at("docs/etc/passwd"), String::from("/etc/passwd")),
            (
                directory.path().join("real/docs/b.md").display().to_string(),
                at("docs/b.md"),
            ),
            (String::from("docs/a.md"), String::from("docs/a.md")),
            (at("nowhere/../docs/a.md"), at("nowhere/../docs/a.md")),
        ] {
            assert_eq!(workspace.followed(vec![written]).await, [place]);
        }
    }

    #[tokio::test]
    async fn permission_request_has_canonical_name_and_real_paths() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", directory.path().join("docs")).unwrap();
        let workspace = workspace(&directory, Sandbox::WorkspaceWrite);
        let mut asked = Vec::new();
        for (tool, path, text) in [
            (WorkspaceTool::ReadFile, "docs/a", ""),
            (WorkspaceTool::ListFiles, ".", ""),
            (WorkspaceTool::Command, ".", "ls"),
            (WorkspaceTool::WriteFile, "docs/a", "é"),
            (WorkspaceTool::DeleteFile, "docs/a", ""),
        ] {
            let call = WorkspaceCall {
                tool,
                path: path.to_owned(),
                text: text.to_owned(),
            };
            let prepared = workspace.prepare(call).await.unwrap();
            asked.push((prepared.tool(), prepared.arguments()));
        }
        assert_eq!(
            asked,
            [
                ("read_file", json!({"path": "real/a"})),
                ("list_files", json!({"path": "."})),
                ("command", json!({"cmd": "ls", "cwd": "."})),
                ("write_file", json!({"path": "real/a", "content": "é"})),
                ("delete_file", json!({"path": "real/a"})),
            ]
        );
    }
}
