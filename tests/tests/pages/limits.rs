//! The page of all limits matches the code.

use std::{collections::BTreeSet, fmt::Write as _, fs};

use svc_kit::limits::Area;
use troupe_tests::page::{check, root};

const HEAD: &str = "\
# Limits

After this page you know every size, time and count that a client can reach, and the setting that changes it. A test generates the tables from the code.

Limits without a setting are fixed. A session can have its own limits, up to the limits of the service.
";

/// Returns all limits, in the order of the page.
fn areas() -> Vec<Area> {
    [
        vec![svc_kit::limits::limits()],
        supervisor_svc::limits(),
        registry_svc::limits(),
        troupe_runner::limits(),
        vec![a2a_svc::limits()],
    ]
    .concat()
}

fn render(areas: &[Area]) -> String {
    let mut page = String::from(HEAD);
    for Area { heading, limits } in areas {
        writeln!(page, "\n## {heading}\n\n| limit | value | set by |\n|---|---|---|").unwrap();
        for limit in limits {
            let set_by = limit.flag.zip(limit.variable());
            let set_by = set_by.map_or_else(String::new, |(flag, variable)| format!("`{flag}`, `{variable}` "));
            writeln!(page, "| {} | {} | {set_by}|", limit.what, limit.amount).unwrap();
        }
    }
    page
}

#[test]
fn limits_page_matches_code() {
    check("docs/limits.md", &render(&areas()));
}

#[test]
fn limits_are_unique_and_settings_are_described() {
    let settings = fs::read_to_string(root().join("docs/settings.md")).unwrap();
    let mut named = BTreeSet::new();
    for area in areas() {
        for limit in area.limits {
            assert!(named.insert((area.heading, limit.what)), "twice: {limit:?}");
            for name in limit.flag.map(str::to_owned).into_iter().chain(limit.variable()) {
                let is_there = [format!("`{name}`"), format!("`{name} ")]
                    .iter()
                    .any(|text| settings.contains(text));
                assert!(is_there, "docs/settings.md lacks {name}");
            }
        }
    }
}
