//! A project with templates.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// Number of nested directories of the project that contain templates.
pub(crate) const DIRECTORIES: usize = 5;
/// Age at which the registry trusts a file's timestamp, plus one second. Every call reads younger files again.
const SETTLE: Duration = Duration::from_secs(4);

/// A repository in a temporary directory.
pub(crate) struct Site {
    _guard: tempfile::TempDir,
    root: PathBuf,
    /// The deepest directory. All templates of the project apply there.
    cwd: PathBuf,
}

impl Site {
    /// Creates a project with `templates` templates in each directory and waits until they are old enough to be cached.
    pub(crate) async fn settled(templates: usize) -> Self {
        let guard = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(guard.path()).unwrap();
        fs::create_dir(root.join(".git")).unwrap();
        let mut cwd = root.clone();
        for directory in 0..DIRECTORIES {
            if directory > 0 {
                cwd.push(format!("d{directory}"));
            }
            let roles = cwd.join(".codex/.agents");
            fs::create_dir_all(&roles).unwrap();
            for number in 0..templates {
                write(&roles.join(format!("role-{directory}-{number}.md")), 0);
            }
        }
        tokio::time::sleep(SETTLE).await;
        Self {
            _guard: guard,
            root,
            cwd,
        }
    }

    /// Returns the project's directory.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn cwd(&self) -> String {
        self.cwd.display().to_string()
    }

    /// Changes one template. Each `version` results in a different text.
    pub(crate) fn change(&self, version: usize) {
        write(&self.root.join(".codex/.agents/role-0-0.md"), version + 1);
    }
}

/// Writes a typical role, with lists, a persona and a page of text.
fn write(path: &Path, version: usize) {
    let text = format!(
        "---
description: Use it for measurements, version {version}.
model: gpt-5.2
reasoning_effort: medium
read_only: true
agent_names:
  - name: fast
    description: Quick.
allow_list: [exec_command, read_file, list_files, update_plan, \"mcp__*\"]
deny_list: [apply_patch]
---
{}
<!-- agent_name: fast -->
Be quick.
",
        "You answer questions about the code with exact references.\n".repeat(20)
    );
    fs::write(path, text).unwrap();
}
