//! The page and the heading of each method and each type of the API, and the links to them.

use std::collections::BTreeMap;

use prost_types::FileDescriptorProto;

use super::declarations::Declarations;

/// The URL of the descriptions of the package `google.protobuf`.
const WELL_KNOWN_TYPES: &str = "https://protobuf.dev/reference/protobuf/google.protobuf/";

/// Returns the name of a file's page: `supervisor` for `troupe/supervisor/v1/supervisor.proto`.
pub fn page_of(file: &FileDescriptorProto) -> &str {
    let (_, name) = file.name().rsplit_once('/').unwrap();
    name.strip_suffix(".proto").unwrap()
}

/// Returns the anchor of a heading on GitHub.
pub fn anchor(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// The place of a description: a page and a heading.
struct Place {
    page: String,
    name: String,
}

impl Place {
    fn link_from(&self, page: &str) -> String {
        let target = if self.page == page {
            String::new()
        } else {
            format!("{}.md", self.page)
        };
        format!("[{}]({target}#{})", self.name, anchor(&self.name))
    }
}

/// Every method and every type of the API, by package and name: `.troupe.supervisor.v1.SpawnAgent`.
pub struct Names {
    places: BTreeMap<String, Place>,
}

impl Names {
    /// Returns the names that these files declare.
    pub fn of(files: &[&FileDescriptorProto]) -> Self {
        let mut places = BTreeMap::new();
        for file in files {
            let declared = Declarations::of(file);
            let methods = file.service.iter().flat_map(|service| &service.method);
            let names = methods
                .map(|method| method.name().to_owned())
                .chain(declared.messages.into_iter().map(|message| message.name))
                .chain(declared.enums.into_iter().map(|declared| declared.name));
            for name in names {
                let place = Place {
                    page: page_of(file).to_owned(),
                    name: name.clone(),
                };
                let earlier = places.insert(format!(".{}.{name}", file.package()), place);
                assert!(earlier.is_none(), "{} has two of the name {name}", file.package());
            }
        }
        Self { places }
    }

    /// Returns the links from a page about a package.
    pub fn links<'a>(&'a self, page: &'a str, package: &'a str) -> Links<'a> {
        Links {
            names: self,
            page,
            package,
        }
    }
}

/// Links from one page.
pub struct Links<'a> {
    names: &'a Names,
    page: &'a str,
    package: &'a str,
}

impl Links<'_> {
    /// Returns a link to a type by its full name, in the form of descriptors.
    pub fn to_type(&self, full_name: &str) -> String {
        if let Some(name) = full_name.strip_prefix(".google.protobuf.") {
            return format!("[{name}]({WELL_KNOWN_TYPES}#{})", anchor(name));
        }
        match self.names.places.get(full_name) {
            Some(place) => place.link_from(self.page),
            None => panic!("{full_name} is on no page"),
        }
    }

    /// Returns the text of a comment as Markdown: code stays code, names of methods and types become links, and other
    /// text is escaped.
    pub fn prose(&self, text: &str) -> String {
        let parts = text.split('`').enumerate();
        parts
            .map(|(number, part)| match number % 2 {
                0 => self.outside_of_code(part),
                _ => format!("`{part}`"),
            })
            .collect()
    }

    fn outside_of_code(&self, text: &str) -> String {
        let is_end = |c: char| !c.is_ascii_alphanumeric();
        let mut markdown = String::new();
        for piece in text.split_inclusive(is_end) {
            let word = piece.trim_end_matches(is_end);
            match self.named(word) {
                Some(place) => markdown.push_str(&place.link_from(self.page)),
                None => markdown.push_str(word),
            }
            let end = &piece[word.len()..];
            if matches!(end, "[" | "<" | "*") {
                markdown.push('\\');
            }
            markdown.push_str(end);
        }
        markdown
    }

    /// Returns the place that a word names: in this package, otherwise in the only package with the name.
    fn named(&self, word: &str) -> Option<&Place> {
        // `SpawnAgent` is always a name. `Thread` and `Input` are also words.
        if word.chars().filter(char::is_ascii_uppercase).count() < 2 {
            return None;
        }
        let places = &self.names.places;
        if let Some(place) = places.get(&format!(".{}.{word}", self.package)) {
            return Some(place);
        }
        let mut others = places.values().filter(|place| place.name == word);
        match (others.next(), others.next()) {
            (Some(place), None) => Some(place),
            _ => None,
        }
    }
}
