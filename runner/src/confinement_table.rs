//! The table of each program's confinement, for `docs/security.md`. The lists in the table come from the code that
//! enforces them.

use std::fmt::Write as _;

use crate::{programs::HIDDEN, project};

/// The programs, as the columns of the table.
const COLUMNS: [(&str, &str); 4] = [
    ("codex", "Codex"),
    ("claude", "Claude Code"),
    ("opencode", "OpenCode"),
    ("gemini", "Gemini CLI"),
];

/// A row: its subject, and a cell for each program.
type Row = (&'static str, [String; 4]);

fn same(about: &'static str, cell: &str) -> Row {
    each(about, [cell; 4])
}

fn each(about: &'static str, cells: [&str; 4]) -> Row {
    (about, cells.map(str::to_owned))
}

/// The table, in Markdown.
#[must_use]
pub fn confinement_table() -> String {
    let mut table = String::from("| |");
    for (_, name) in COLUMNS {
        let _ = write!(table, " {name} |");
    }
    table.push_str("\n|---|---|---|---|---|\n");
    for (about, cells) in rows() {
        let _ = write!(table, "| {about} |");
        for cell in cells {
            let _ = write!(table, " {cell} |");
        }
        table.push('\n');
    }
    let _ = write!(
        table,
        "\nRead-only to agents in WORKSPACE_WRITE, and not to be created: {}, and in a repository its hooks and settings \
         (`.git/hooks`, `.git/config`, `.git/modules`, `.git/worktrees`, the directory of `core.hooksPath`). Read-only where \
         they exist: {}.\n\nHidden by default, see `hidden` in [Runners](runner.md#several-programs): {}.\n",
        quoted(project::DIRECTORIES),
        quoted(project::EXISTING),
        quoted(HIDDEN),
    );
    table
}

fn rows() -> Vec<Row> {
    let settings = COLUMNS.map(|(kind, _)| {
        format!(
            "not loaded ({}); the program does not see {}",
            project::ignore_option(kind),
            quoted(project::settings_files(kind))
        )
    });
    vec![
        same("Writes, READ_ONLY", "its own home and scratch directory"),
        same(
            "Writes, WORKSPACE_WRITE",
            "the same, its working directory, and the objects, branches and index of its repository",
        ),
        same("Writes, FULL_ACCESS", "everything that the runner's user can write"),
        same(
            "Reads",
            "everything that the runner's user can read, except the data directory, other threads' directories and, without \
             FULL_ACCESS, the hidden paths",
        ),
        same(
            "`/tmp` and `/var/tmp`",
            "private and empty; those of the machine with FULL_ACCESS",
        ),
        ("Project settings that start programs, at every level", settings),
        same(
            "Roles, hooks, program settings",
            "read-only; `git commit` works. Not protected with FULL_ACCESS, below a subdirectory, and in a repository that the \
             agent itself creates",
        ),
        each(
            "Provider key in the environment of its commands",
            [
                "no: held by a local proxy, and left out of their environment",
                "no: held by a local proxy; without one it is in an open file without a name",
                "no: held by a local proxy where the address of its provider is known; otherwise POLICY_GAP names the variable",
                "no: `GEMINI_API_KEY` is held by a local proxy; POLICY_GAP names any other variable",
            ],
        ),
        same(
            "Login file, if one is lent",
            "its commands can read it; POLICY_GAP says so",
        ),
        each(
            "Rate of its requests to the provider",
            [
                "limited by a local proxy; not with a login, POLICY_GAP",
                "limited by a local proxy; not with a login, POLICY_GAP",
                "limited by a local proxy where the address of its provider is known",
                "limited by a local proxy; not with a login, POLICY_GAP",
            ],
        ),
        each(
            "Network of its tools, READ_ONLY",
            [
                "none: its own sandbox",
                "none: such tools are not offered, POLICY_GAP",
                "none: such tools are not offered, POLICY_GAP",
                "none: such tools are not offered, POLICY_GAP",
            ],
        ),
        each(
            "Network of its commands, WORKSPACE_WRITE",
            [
                "none, unless its `settings` allow it: its own sandbox",
                "yes",
                "yes",
                "yes",
            ],
        ),
        same("Network, FULL_ACCESS", "yes"),
        same(
            "Processes",
            "a process namespace of their own: they see no others, and all end with the program",
        ),
        same(
            "PLANNING",
            "its tools and commands write in `docs/` only, not in `docs/templates`, also with FULL_ACCESS; without bubblewrap, \
             commands are denied except in READ_ONLY threads",
        ),
        same(
            "With Landlock instead of bubblewrap",
            "the same writes and hidden paths, `/tmp` included. Not protected, POLICY_GAP: roles, hooks and program settings in \
             its workspace, and `docs/templates` in PLANNING mode. A project with settings that start programs is refused by \
             OpenCode and Gemini CLI. No process namespace",
        ),
        each(
            "Without both",
            [
                "its own sandbox holds commands and patches; nothing is hidden",
                "READ_ONLY is refused; POLICY_GAP for WORKSPACE_WRITE",
                "the same; a project with such settings is refused",
                "the same; a project with such settings is refused",
            ],
        ),
    ]
}

fn quoted(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}
