//! Every file of the reference: a page for each proto file of the API, the page of error reasons, the index, and the
//! schema of exports.

use std::collections::BTreeMap;

use prost::Message as _;
use prost_types::{FileDescriptorProto, FileDescriptorSet};
use troupe_proto::FILE_DESCRIPTOR_SET_WITH_COMMENTS;

use super::{
    comments::step,
    declarations::Declarations,
    errors, export_schema,
    names::{Names, page_of},
    services::service,
    source::Source,
    table::table,
    types::{enumeration, message},
};

/// The package of stored records. It is compiled with the API, but it is not part of the API.
const STORE: &str = "troupe.store.v1";

/// Returns the pages by the names of their files.
pub fn pages() -> BTreeMap<String, String> {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET_WITH_COMMENTS).unwrap();
    let mut files: Vec<&FileDescriptorProto> = set
        .file
        .iter()
        .filter(|file| file.package().starts_with("troupe.") && file.package() != STORE)
        .collect();
    // Services come first, because readers begin with them.
    files.sort_by_key(|file| file.service.is_empty());

    let names = Names::of(&files);
    let sources: Vec<Source<'_>> = files.iter().map(|file| Source::new(file, &names)).collect();
    let mut pages = BTreeMap::new();
    for source in &sources {
        let earlier = pages.insert(format!("{}.md", page_of(source.file)), page(source));
        assert!(earlier.is_none(), "two files have the page of {}", source.file.name());
    }
    pages.insert("errors.md".to_owned(), errors::page(&names));
    pages.insert("README.md".to_owned(), index(&sources));
    pages.insert(export_schema::FILE.to_owned(), export_schema::text());
    pages
}

/// Returns the page of a file.
fn page(source: &Source<'_>) -> String {
    let (file, name) = (source.file, page_of(source.file));
    let declared = Declarations::of(file);
    let mut blocks = vec![
        format!("# {name}.proto\n"),
        source.comment(&[step::SYNTAX]),
        format!(
            "Package `{}`, declared in [{path}](../../proto/{path}), from which a test writes this page.\n",
            file.package(),
            path = file.name(),
        ),
    ];
    for (position, declared) in (0..).zip(&file.service) {
        blocks.extend(service(source, declared, &[step::SERVICE, position]));
    }
    let messages: Vec<String> = declared.messages.iter().flat_map(|one| message(source, one)).collect();
    let enums: Vec<String> = declared.enums.iter().flat_map(|one| enumeration(source, one)).collect();
    for (heading, sections) in [("Messages", messages), ("Enums", enums)] {
        if !sections.is_empty() {
            blocks.push(format!("## {heading}\n"));
            blocks.extend(sections);
        }
    }
    blocks.join("\n")
}

/// Returns the index page.
fn index(sources: &[Source<'_>]) -> String {
    let mut rows: Vec<_> = sources
        .iter()
        .map(|source| {
            let name = page_of(source.file);
            [
                format!("[{name}.proto]({name}.md)"),
                services(source.file),
                source.summary(&[step::SYNTAX]),
            ]
        })
        .collect();
    rows.push([
        "[Error reasons](errors.md)".to_owned(),
        String::new(),
        "Why a call failed, stable across releases.".to_owned(),
    ]);
    rows.push([
        format!("[{file}]({file})", file = export_schema::FILE),
        String::new(),
        "The JSON Schema of each line that `troupe export -o jsonl` writes.".to_owned(),
    ]);
    format!(
        "\
# API reference

After this page you can look up every method, message, enum and error reason of the API.

A test generates these pages from the comments of the `.proto` files. Start with [the API by example](../api.md).

{}
Each method lists its permitted callers; other callers are rejected. Viewers are operators who may only read. What a thread may
do to which other thread, and with which tools, is decided after that.
",
        table(["page", "services", "what"], rows)
    )
}

/// Returns the services of a file, for the index.
fn services(file: &FileDescriptorProto) -> String {
    let names: Vec<_> = file
        .service
        .iter()
        .map(|service| format!("`{}.{}`", file.package(), service.name()))
        .collect();
    names.join(", ")
}
