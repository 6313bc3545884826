//! The page of all limits says what the code says.

use std::{collections::BTreeSet, fmt::Write as _, fs};

use svc_kit::limits::Limit;
use troupe_tests::page::{check, root};

const HEAD: &str = "\
# Limits

After this page you know every size, time and count that a client can reach, and the setting that changes it. A test generates the tables from the code.

Limits without a setting are fixed. A session can have its own limits, up to the limits of the service.
";

/// Every number, in the order of the page.
fn table() -> Vec<Limit> {
    [
        svc_kit::limits::limits(),
        supervisor_svc::limits(),
        registry_svc::limits(),
        troupe_runner::limits(),
        a2a_svc::limits(),
    ]
    .concat()
}

fn render(limits: &[Limit]) -> String {
    let mut areas: Vec<&str> = Vec::new();
    for limit in limits {
        if !areas.contains(&limit.area) {
            areas.push(limit.area);
        }
    }
    let mut page = String::from(HEAD);
    for area in areas {
        writeln!(page, "\n## {area}\n\n| limit | value | set by |\n|---|---|---|").unwrap();
        for limit in limits.iter().filter(|limit| limit.area == area) {
            let set_by = limit.setting.map_or_else(String::new, |setting| {
                format!("`{}`, `{}` ", setting.flag, setting.variable)
            });
            writeln!(page, "| {} | {} | {set_by}|", limit.what, limit.amount).unwrap();
        }
    }
    page
}

#[test]
fn the_page_of_limits_is_what_the_code_has() {
    check("docs/limits.md", &render(&table()));
}

#[test]
fn every_number_is_named_once_and_every_setting_is_described() {
    let settings = fs::read_to_string(root().join("docs/settings.md")).unwrap();
    let mut named = BTreeSet::new();
    for limit in table() {
        assert!(named.insert((limit.area, limit.what)), "twice: {limit:?}");
        for name in limit
            .setting
            .iter()
            .flat_map(|setting| [setting.flag, setting.variable])
        {
            let is_there = [format!("`{name}`"), format!("`{name} ")]
                .iter()
                .any(|text| settings.contains(text));
            assert!(is_there, "docs/settings.md lacks {name}");
        }
    }
}
