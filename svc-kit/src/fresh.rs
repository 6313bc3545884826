//! A value that is made of files, and made anew when they have changed. Nobody watches them: whoever asks looks.

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use crate::stamp::Stamp;

/// A value and the files that it is made of.
#[derive(Debug)]
pub(crate) struct Fresh<T> {
    files: Vec<PathBuf>,
    present: Mutex<Present<T>>,
}

#[derive(Debug)]
struct Present<T> {
    value: Arc<T>,
    /// As the files were when it was made.
    seen: Vec<Option<Stamp>>,
    /// As they were when it last could not be. It is tried again: the cause need not be the files.
    failed: Vec<Option<Stamp>>,
}

impl<T> Fresh<T> {
    /// Makes the value for the first time.
    ///
    /// # Errors
    ///
    /// Those of making it.
    pub(crate) fn new<E>(files: Vec<PathBuf>, make: impl FnOnce() -> Result<T, E>) -> Result<Self, E> {
        // Before it is made: what changes meanwhile is seen by the next who asks.
        let seen = stamps(&files);
        let present = Present {
            value: Arc::new(make()?),
            seen,
            failed: Vec::new(),
        };
        Ok(Self {
            files,
            present: Mutex::new(present),
        })
    }

    /// The value of the files as they are now; the one before if theirs cannot be made. Waits for a disk if they changed.
    pub(crate) fn get<E: std::fmt::Display>(&self, make: impl FnOnce() -> Result<T, E>) -> Arc<T> {
        let seen = stamps(&self.files);
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        if seen != present.seen {
            match make() {
                Ok(value) => {
                    tracing::info!(files = ?self.files, "files that were replaced are read anew");
                    present.value = Arc::new(value);
                    present.seen = seen;
                }
                // Two files that belong together are replaced one after the other. Said once, not to each who asks.
                Err(error) if seen != present.failed => {
                    tracing::warn!(%error, "what was read before goes on to count");
                    present.failed = seen;
                }
                Err(_) => {}
            }
        }
        Arc::clone(&present.value)
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Option<Stamp>> {
    let stamp = |path: &PathBuf| Some(Stamp::of(&fs::metadata(path).ok()?));
    files.iter().map(stamp).collect()
}
