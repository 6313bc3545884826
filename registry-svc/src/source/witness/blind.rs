//! The witness for systems without inotify. It never yields a pledge, so every call scans the disk.

use std::path::Path;

use crate::source::places::Lookout;

/// A witness that observes nothing.
#[derive(Debug, Default)]
pub(crate) struct Witness;

/// A look that never yields a pledge.
#[derive(Debug)]
pub(crate) struct Look<'a> {
    witness: &'a Witness,
}

/// A pledge that is never created.
#[derive(Debug)]
pub(crate) enum Pledge {}

impl Witness {
    /// Returns a look.
    #[must_use]
    pub(crate) const fn look(&self) -> Look<'_> {
        Look { witness: self }
    }

    /// Returns whether values read under the pledge are still current.
    #[must_use]
    pub(crate) const fn vouches(&self, pledge: &Pledge) -> bool {
        match *pledge {}
    }
}

impl Look<'_> {
    /// Returns a look at a part of the locations of this look.
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

    /// Returns whether this look can use values that were read under the pledge.
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
