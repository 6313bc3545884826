//! Pages of the documentation that are generated from the programs' own help texts: the settings and the command
//! reference.

use std::{collections::BTreeMap, env, fmt::Write as _, fs, path::Path};

use clap::{Arg, ArgAction, Command, CommandFactory as _};
use registry_svc::domain::finding_kind::FindingKind;
use svc_kit::settings;

use crate::{args::Cli, global::SHARED_SETTINGS};

/// Environment variable that makes the tests write the pages before they compare the pages with the programs.
const WRITE: &str = "TROUPE_WRITE_DOCS";

const SETTINGS_HEAD: &str = "\
# Settings

After this page you can set any option of `troupe up`, `troupe run` and the services, in a file, a variable or a flag. A test generates the table from the programs.

The sources of a value, in order of precedence: the flag, the environment variable, the file of `--config FILE` (`TROUPE_CONFIG`), the default. The file is YAML and uses the names in the first column. Flags without a value are `true` or `false`; repeatable flags may be lists. `--print-config` prints the effective values with their sources and exits. `troupe run` reads no file.
";

/// A setting of one or more programs.
struct Row {
    flag: String,
    variable: String,
    default: String,
    what: String,
    of: Vec<&'static str>,
}

fn programs() -> [(&'static str, Command); 5] {
    let built = |mut command: Command| {
        command.build();
        command
    };
    let cli = built(Cli::command());
    let own = |name: &str| cli.find_subcommand(name).unwrap().clone();
    [
        ("up", own("up")),
        ("run", own("run")),
        ("registry-svc", built(registry_svc::program::Options::command())),
        ("supervisor-svc", built(supervisor_svc::program::Options::command())),
        ("a2a-svc", built(a2a_svc::program::Options::command())),
    ]
}

fn row(arg: &Arg, of: &'static str) -> Row {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    // A default that is computed at run time is described in the help text.
    let (what, described) = match help.split_once(" [default: ") {
        Some((what, default)) => (what, default.trim_end_matches(']')),
        None => (help.as_str(), ""),
    };
    let values: Vec<_> = arg
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy())
        .collect();
    let default = match (arg.get_action(), described) {
        (ArgAction::SetTrue, _) => String::from("off"),
        (_, "") if values.is_empty() => String::from("none"),
        (_, "") => format!("`{}`", values.join(" ")),
        (_, described) => described.to_owned(),
    };
    let long = arg.get_long().unwrap_or_default();
    let value = arg
        .get_value_names()
        .filter(|_| !matches!(arg.get_action(), ArgAction::SetTrue));
    let value = value.map(|names| format!(" {}", names.join(" "))).unwrap_or_default();
    let is_optional = arg.get_num_args().is_some_and(|range| range.min_values() == 0) && !value.is_empty();
    let flag = match (is_optional, value.trim()) {
        (true, value) => format!("`--{long}[={value}]`"),
        (false, _) => format!("`--{long}{value}`"),
    };
    Row {
        flag,
        variable: arg
            .get_env()
            .map_or_else(String::new, |name| format!("`{}`", name.to_string_lossy())),
        default,
        what: what.replace('|', "\\|"),
        of: vec![of],
    }
}

fn settings_page() -> String {
    let mut rows: BTreeMap<(String, String), Row> = BTreeMap::new();
    for (name, command) in &programs() {
        for arg in settings::known(command, SHARED_SETTINGS) {
            let found = row(arg, name);
            let key = (arg.get_id().to_string(), found.what.clone());
            match rows.get_mut(&key) {
                Some(known) => {
                    assert_eq!(
                        (&known.flag, &known.default),
                        (&found.flag, &found.default),
                        "one setting, one meaning"
                    );
                    known.of.push(name);
                }
                None => drop(rows.insert(key, found)),
            }
        }
    }
    let mut page = String::from(SETTINGS_HEAD);
    page.push_str("\n| setting | flag | variable | default | programs | description |\n|---|---|---|---|---|---|\n");
    for ((name, _), row) in rows {
        let of: Vec<String> = row.of.iter().map(|of| format!("`{of}`")).collect();
        let flag = row.flag.replace('|', "\\|");
        let (variable, default, what) = (row.variable, row.default, row.what);
        writeln!(
            page,
            "| `{name}` | {flag} | {variable} | {default} | {} | {what} |",
            of.join(", ")
        )
        .unwrap();
    }
    page
}

const COMMANDS_HEAD: &str = "\
# Command reference

Use this page to look up the arguments and options of a command. `troupe COMMAND --help` prints the same texts, and `troupe man` writes them as manual pages. A test generates the page from the program. [Command line](command-line.md) describes ids, output formats, exit codes and contexts.

## Options of every command

```text
";

/// Columns of the help texts, so that they fit a page.
const HELP_COLUMNS: usize = 100;

/// Returns the options that every command has, as they appear in its help.
fn shared_options(cli: &Command) -> String {
    let shared = cli.get_arguments().filter(|arg| arg.is_global_set()).cloned();
    let command = Command::new("troupe").disable_help_flag(true).args(shared);
    help(command.help_template("{options}"))
}

fn help(command: Command) -> String {
    // The page must not contain the values of this process's environment variables.
    let command = command.mut_args(|arg| arg.hide_env_values(true));
    let text = command.term_width(HELP_COLUMNS).render_help().to_string();
    let lines: Vec<&str> = text.trim_matches('\n').lines().map(str::trim_end).collect();
    lines.join("\n")
}

/// Adds a section for a command and for each of its subcommands.
fn add_command(page: &mut String, path: &str, command: &Command) {
    if command.is_hide_set() {
        return;
    }
    let own = command.clone().bin_name(path).disable_help_subcommand(true);
    writeln!(page, "\n## {path}\n\n```text\n{}\n```", help(own)).unwrap();
    if path == "troupe lint" {
        page.push_str("\nThe rules of `lint`:\n\n| rule | finding |\n|---|---|\n");
        for kind in FindingKind::ALL {
            writeln!(page, "| `{}` | {} |", kind.id(), kind.summary()).unwrap();
        }
    }
    for subcommand in command.get_subcommands() {
        add_command(page, &format!("{path} {}", subcommand.get_name()), subcommand);
    }
}

fn commands_page() -> String {
    let cli = Cli::command();
    let mut page = format!("{COMMANDS_HEAD}{}\n```\n", shared_options(&cli));
    // The subcommands are not built yet, so that their help texts do not repeat the options of every command.
    for command in cli.get_subcommands() {
        add_command(&mut page, &format!("troupe {}", command.get_name()), command);
    }
    page
}

fn check(name: &str, page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    if env::var_os(WRITE).is_some() {
        fs::write(&path, page).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/{name} differs from the programs; generate it with `{WRITE}=1 cargo test -p troupe-cli --lib \
         generated_pages`"
    );
}

#[test]
fn settings_reference_matches_the_programs() {
    check("settings.md", &settings_page());
}

#[test]
fn command_reference_matches_the_program() {
    check("command-reference.md", &commands_page());
}
