//! The comments of a proto file, by the path of the commented element.
//!
//! Source information identifies an element by a path: field numbers in descriptor.proto, each followed by an index.

use std::collections::HashMap;

use prost_types::FileDescriptorProto;

/// The field numbers in paths.
pub mod step {
    /// `FileDescriptorProto.message_type`.
    pub const MESSAGE: i32 = 4;
    /// `FileDescriptorProto.enum_type`.
    pub const ENUM: i32 = 5;
    /// `FileDescriptorProto.service`.
    pub const SERVICE: i32 = 6;
    /// `FileDescriptorProto.syntax`, which has no index. The comment before it is the comment of the file.
    pub const SYNTAX: i32 = 12;
    /// `DescriptorProto.field`.
    pub const FIELD: i32 = 2;
    /// `DescriptorProto.nested_type`.
    pub const NESTED_MESSAGE: i32 = 3;
    /// `DescriptorProto.enum_type`.
    pub const NESTED_ENUM: i32 = 4;
    /// `DescriptorProto.oneof_decl`.
    pub const ONEOF: i32 = 8;
    /// `EnumDescriptorProto.value`.
    pub const VALUE: i32 = 2;
    /// `ServiceDescriptorProto.method`.
    pub const METHOD: i32 = 2;
}

/// Returns the path of an element inside of the element at `path`.
pub fn inside(path: &[i32], step: i32, position: i32) -> Vec<i32> {
    let mut inner = path.to_vec();
    inner.extend([step, position]);
    inner
}

/// All comments of a file.
pub struct Comments<'a> {
    file: &'a str,
    by_path: HashMap<&'a [i32], &'a str>,
}

impl<'a> Comments<'a> {
    /// Returns the comments of a file with source information.
    pub fn of(file: &'a FileDescriptorProto) -> Self {
        let locations = file.source_code_info.iter().flat_map(|info| &info.location);
        Self {
            file: file.name(),
            by_path: locations
                .filter_map(|location| Some((location.path.as_slice(), location.leading_comments.as_deref()?)))
                .collect(),
        }
    }

    /// Returns the paragraphs of the comment at a path. Panics without a comment, because every element of the API has
    /// one.
    pub fn at(&self, path: &[i32]) -> Vec<String> {
        match self.by_path.get(path) {
            Some(comment) => paragraphs(comment),
            None => panic!("{} has no comment at {path:?}", self.file),
        }
    }
}

/// Returns the paragraphs of a comment, each in one line.
pub fn paragraphs(comment: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    for line in comment.lines().map(str::trim) {
        if line.is_empty() {
            paragraphs.push(String::new());
            continue;
        }
        let paragraph = paragraphs.last_mut().unwrap();
        // A word that was broken at its hyphen continues on the next line.
        if !paragraph.is_empty() && !paragraph.ends_with('-') {
            paragraph.push(' ');
        }
        paragraph.push_str(line);
    }
    paragraphs.retain(|paragraph| !paragraph.is_empty());
    paragraphs
}

/// Returns the first sentence of a paragraph.
pub fn first_sentence(paragraph: &str) -> &str {
    paragraph.find(". ").map_or(paragraph, |end| &paragraph[..=end])
}
