//! The witness of systems without inotify: it never vouches, so every call looks at the disk.

use std::path::Path;

use crate::source::places::Lookout;

/// Sees nothing.
#[derive(Debug, Default)]
pub(crate) struct Witness;

/// A look that nobody vouches for.
#[derive(Debug)]
pub(crate) struct Look<'a> {
    witness: &'a Witness,
}

/// What is never given.
#[derive(Debug)]
pub(crate) enum Pledge {}

impl Witness {
    /// A look.
    #[must_use]
    pub(crate) const fn look(&self) -> Look<'_> {
        Look { witness: self }
    }

    /// Whether what was read under the pledge is still so.
    #[must_use]
    pub(crate) const fn vouches(&self, pledge: &Pledge) -> bool {
        match *pledge {}
    }
}

impl Look<'_> {
    /// A look at a part of what this one looks at.
    #[must_use]
    pub(crate) const fn part(&self) -> Self {
        self.witness.look()
    }

    /// Everything in the directory at this path.
    pub(crate) const fn directory(&mut self, _: &Path) {}

    /// The file that the link at this path leads to.
    pub(crate) const fn link(&mut self, _: &Path) {}

    /// Something changes unseen.
    pub(crate) const fn doubt(&mut self) {}

    /// Whether this look can do with what was read under the pledge.
    #[must_use]
    pub(crate) const fn relies_on(&mut self, pledge: &Pledge) -> bool {
        match *pledge {}
    }

    /// Adds what was read under the pledge.
    pub(crate) const fn include(&mut self, pledge: &Pledge) {
        match *pledge {}
    }

    /// No pledge.
    #[must_use]
    pub(crate) const fn done(self) -> Option<Pledge> {
        None
    }
}

impl Lookout for Look<'_> {
    fn way(&mut self, _: &Path) {}

    fn name(&mut self, _: &Path, _: &str) {}

    fn place(&mut self, _: &Path, _: &str) {}
}
