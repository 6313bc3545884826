//! The settings reference, generated from the programs' own help texts.

use std::{collections::BTreeMap, env, fmt::Write as _, fs, path::Path};

use clap::{Arg, ArgAction, Command, CommandFactory as _};
use svc_kit::settings;

use crate::{args::Cli, global::SHARED_SETTINGS};

/// Environment variable that makes the test write the settings reference instead of comparing it.
const WRITE: &str = "TROUPE_WRITE_DOCS";

const HEAD: &str = "\
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

fn programs() -> [(&'static str, Command); 4] {
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
    ]
}

fn row(arg: &Arg, of: &'static str) -> Row {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    // A default that is computed at run time is described in the help text.
    let (what, told) = match help.split_once(" [default: ") {
        Some((what, told)) => (what, told.trim_end_matches(']')),
        None => (help.as_str(), ""),
    };
    let values: Vec<_> = arg
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy())
        .collect();
    let default = match (arg.get_action(), told) {
        (ArgAction::SetTrue, _) => String::from("off"),
        (_, "") if values.is_empty() => String::from("none"),
        (_, "") => format!("`{}`", values.join(" ")),
        (_, told) => told.to_owned(),
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

fn page() -> String {
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
    let mut page = String::from(HEAD);
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

#[test]
fn settings_reference_matches_the_programs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/settings.md");
    let page = page();
    if env::var_os(WRITE).is_some() {
        fs::write(&path, &page).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/settings.md differs from the programs; generate it with `{WRITE}=1 cargo test -p troupe-cli --lib \
         settings_page`"
    );
}
