//! The reference of the API matches the proto files and the code.

mod comments;
mod declarations;
mod errors;
mod export_schema;
mod names;
mod pages;
mod services;
mod source;
mod table;
mod types;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use troupe_tests::page::{WRITE, is_written_now, root};

use self::{
    comments::{first_sentence, paragraphs},
    names::{Names, anchor},
    pages::pages,
};

fn docs() -> PathBuf {
    root().join("docs")
}

/// Returns the existing pages by file name.
fn written(directory: &Path) -> BTreeMap<String, String> {
    let Ok(entries) = fs::read_dir(directory) else {
        return BTreeMap::new();
    };
    entries
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect()
}

/// Returns the anchors of a page's headings, in order.
fn anchors(page: &str) -> Vec<String> {
    page.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| anchor(line.trim_start_matches('#').trim()))
        .collect()
}

/// Returns the targets of a page's links.
fn targets(page: &str) -> impl Iterator<Item = &str> {
    page.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

#[test]
fn reference_pages_match_protos_and_code() {
    let directory = docs().join("reference");
    let pages = pages();
    if is_written_now() {
        fs::create_dir_all(&directory).unwrap();
        for (name, page) in &pages {
            fs::write(directory.join(name), page).unwrap();
        }
    }
    let written = written(&directory);
    let different: BTreeSet<&String> = pages
        .keys()
        .chain(written.keys())
        .filter(|name| pages.get(*name) != written.get(*name))
        .collect();
    assert!(
        different.is_empty(),
        "docs/reference differs in {different:?}; write it again with `{WRITE}=1 cargo test -p troupe-tests --test pages`, \
        and remove files that are not generated"
    );
}

#[test]
fn every_link_leads_to_a_heading_or_a_file() {
    let pages = pages();
    let mut followed = 0;
    for (name, page) in &pages {
        for target in targets(page).filter(|target| !target.starts_with("https://")) {
            let (file, fragment) = target.split_once('#').unwrap_or((target, ""));
            let there = match file.strip_prefix("../") {
                Some(outside) => fs::read_to_string(docs().join(outside)).ok(),
                None => pages.get(if file.is_empty() { name.as_str() } else { file }).cloned(),
            };
            let Some(there) = there else {
                panic!("{name} links to {target}, and there is no such file");
            };
            assert!(
                fragment.is_empty() || anchors(&there).iter().any(|anchor| anchor == fragment),
                "{name} links to {target}, and there is no such heading"
            );
            followed += 1;
        }
    }
    assert!(followed > pages.len(), "only {followed} links were found");
}

#[test]
fn headings_of_a_page_have_distinct_anchors() {
    for (name, page) in pages() {
        let mut seen = BTreeSet::new();
        for anchor in anchors(&page) {
            assert!(seen.insert(anchor.clone()), "{name} has two headings for #{anchor}");
        }
    }
}

#[test]
fn anchors_match_github() {
    assert_eq!(anchor("SpawnAgentRequest"), "spawnagentrequest");
    assert_eq!(anchor("PlanStep.State"), "planstepstate");
    assert_eq!(anchor("Error reasons"), "error-reasons");
}

#[test]
fn comments_are_joined_by_paragraphs() {
    let comment = " One line. And\n another, broken at a hy-\n phen.\n\n The end\n";
    let joined = paragraphs(comment);
    assert_eq!(joined, ["One line. And another, broken at a hy-phen.", "The end"]);
    assert_eq!(first_sentence(&joined[0]), "One line.");
    assert_eq!(first_sentence(&joined[1]), "The end");
}

#[test]
fn markup_characters_in_prose_are_escaped() {
    let names = Names::of(&[]);
    let links = names.links("page", "");
    assert_eq!(
        links.prose("[it] is `[\"*\"]` or Vec<u8>, not *that*"),
        "\\[it] is `[\"*\"]` or Vec\\<u8>, not \\*that\\*"
    );
}
