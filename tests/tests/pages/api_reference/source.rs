//! One proto file with its comments, as the sections of its page need it.

use prost_types::FileDescriptorProto;

use super::{
    comments::{Comments, first_sentence},
    names::{Links, Names, page_of},
};

/// A proto file and the links of its page.
pub struct Source<'a> {
    /// The file.
    pub file: &'a FileDescriptorProto,
    /// Links from its page.
    pub links: Links<'a>,
    comments: Comments<'a>,
}

impl<'a> Source<'a> {
    /// Creates the source of a page that links to these names.
    pub fn new(file: &'a FileDescriptorProto, names: &'a Names) -> Self {
        Self {
            file,
            links: names.links(page_of(file), file.package()),
            comments: Comments::of(file),
        }
    }

    /// Returns the comment at a path as a block of the page.
    pub fn comment(&self, path: &[i32]) -> String {
        let paragraphs = self.comments.at(path);
        self.links.prose(&paragraphs.join("\n\n")) + "\n"
    }

    /// Returns the comment at a path for a cell of a table.
    pub fn note(&self, path: &[i32]) -> String {
        self.links.prose(&self.comments.at(path).join(" "))
    }

    /// Returns the first sentence of the comment at a path.
    pub fn summary(&self, path: &[i32]) -> String {
        self.links.prose(first_sentence(&self.comments.at(path)[0]))
    }
}
