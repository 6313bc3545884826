//! A value that is built from files and rebuilt when they change. There is no watcher: every access checks the files.
//!
//! Files with an unchanged stamp are not read again, unless they were written so shortly before the read that a later
//! write may leave the same stamp. Files that could not be used are read again when their stamp changes, and otherwise
//! once a second.

use std::{
    fmt::Display,
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use crate::stamp::Stamp;

/// How long unusable files with an unchanged stamp are not read again. The cause may be something other than the files.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A value and the files that it is built from.
#[derive(Debug)]
pub(crate) struct Fresh<T> {
    files: Vec<PathBuf>,
    present: Mutex<Present<T>>,
}

#[derive(Debug)]
struct Present<T> {
    value: Arc<T>,
    /// State of the files that the value was built from.
    seen: Look,
    /// State of the files at the last failed rebuild since then.
    failed: Option<Look>,
}

/// The stamps of the files, and the time at which they were taken: before the read, so that a concurrent write counts
/// as later.
#[derive(Debug)]
struct Look {
    stamps: Vec<Option<Stamp>>,
    at: SystemTime,
}

impl Look {
    fn at(files: &[PathBuf], at: SystemTime) -> Self {
        let stamp = |path: &PathBuf| Some(Stamp::of(&fs::metadata(path).ok()?));
        Self {
            stamps: files.iter().map(stamp).collect(),
            at,
        }
    }

    /// Returns whether the files are unchanged if their stamps are now `now`.
    fn tells_of(&self, now: &Self) -> bool {
        let mut present = self.stamps.iter().flatten();
        self.stamps == now.stamps && present.all(|stamp| stamp.is_settled(self.at))
    }

    /// Returns whether the stamps were taken a moment ago. Returns `false` if the clock was set back since then.
    fn is_recent(&self, now: &Self) -> bool {
        let passed = now.at.duration_since(self.at);
        passed.is_ok_and(|passed| passed < TRY_AGAIN_AFTER)
    }
}

impl<T> Fresh<T> {
    /// Builds the value for the first time.
    ///
    /// # Errors
    ///
    /// The error of `make`.
    pub(crate) fn new<E>(files: Vec<PathBuf>, make: impl FnOnce() -> Result<T, E>) -> Result<Self, E> {
        let seen = Look::at(&files, SystemTime::now());
        let present = Present {
            value: Arc::new(make()?),
            seen,
            failed: None,
        };
        Ok(Self {
            files,
            present: Mutex::new(present),
        })
    }

    /// Returns the value of the current files, or the previous value if they cannot be used. Blocks on disk access if
    /// they changed.
    pub(crate) fn get<E: Display>(&self, make: impl FnOnce() -> Result<T, E>) -> Arc<T> {
        self.get_at(SystemTime::now(), make)
    }

    fn get_at<E: Display>(&self, now: SystemTime, make: impl FnOnce() -> Result<T, E>) -> Arc<T> {
        let look = Look::at(&self.files, now);
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known_to_fail = |failed: &Look| failed.tells_of(&look) && failed.is_recent(&look);
        if present.seen.tells_of(&look) || present.failed.as_ref().is_some_and(is_known_to_fail) {
            return Arc::clone(&present.value);
        }
        match make() {
            Ok(value) => {
                if look.stamps != present.seen.stamps {
                    tracing::info!(files = ?self.files, "files that were replaced are read anew");
                }
                *present = Present {
                    value: Arc::new(value),
                    seen: look,
                    failed: None,
                };
            }
            Err(error) => {
                // Files that belong together are replaced one after the other, so a mismatch may be temporary. Log it
                // once, not on every access.
                let is_news = present
                    .failed
                    .as_ref()
                    .is_none_or(|failed| failed.stamps != look.stamps);
                if is_news {
                    tracing::warn!(%error, files = ?self.files, "what was read before goes on to count");
                }
                present.failed = Some(look);
            }
        }
        Arc::clone(&present.value)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tempfile::TempDir;

    use super::*;

    /// A file, the value built from it, and the number of reads.
    struct Stage {
        directory: TempDir,
        fresh: Fresh<u32>,
        began: SystemTime,
        reads: Cell<u32>,
    }

    impl Stage {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let file = directory.path().join("file");
            fs::write(&file, "1").unwrap();
            let fresh = Fresh::new(vec![file], || Ok::<_, String>(1)).unwrap();
            Self {
                directory,
                fresh,
                began: SystemTime::now(),
                reads: Cell::new(0),
            }
        }

        /// Replaces the file with another one.
        fn replace(&self) {
            let aside = self.directory.path().join("aside");
            fs::write(&aside, "another").unwrap();
            fs::rename(aside, self.directory.path().join("file")).unwrap();
        }

        /// Returns the value after `after`, with a file that holds `says`.
        fn get(&self, after: Duration, says: Result<u32, &str>) -> u32 {
            let read = || {
                self.reads.set(self.reads.get() + 1);
                says
            };
            *self.fresh.get_at(self.began + after, read)
        }
    }

    /// Late enough that the stamps of all writes in a test are settled.
    const LATER: Duration = Duration::from_secs(60);

    #[test]
    fn a_file_that_was_just_written_is_read_again_until_a_change_would_show() {
        let stage = Stage::new();
        assert_eq!(
            stage.get(Duration::ZERO, Ok(2)),
            2,
            "a write within one tick of the clock"
        );
        assert_eq!(stage.get(LATER, Ok(3)), 3, "it was not settled when it was read");
        assert_eq!(stage.get(LATER, Ok(4)), 3);
        assert_eq!(stage.reads.get(), 2);
    }

    #[test]
    fn a_broken_file_is_not_read_for_each_who_asks() {
        let stage = Stage::new();
        assert_eq!(stage.get(LATER, Ok(1)), 1);
        stage.replace();
        for _ in 0..3 {
            assert_eq!(stage.get(LATER, Err("it is broken")), 1);
        }
        assert_eq!(stage.reads.get(), 2);
        assert_eq!(stage.get(LATER + 2 * TRY_AGAIN_AFTER, Ok(2)), 2, "it was not the file");
        stage.replace();
        assert_eq!(stage.get(LATER, Ok(3)), 3, "it looks different");
        assert_eq!(stage.reads.get(), 4);
    }

    #[test]
    fn a_broken_file_that_was_just_written_is_read_again() {
        let stage = Stage::new();
        stage.replace();
        assert_eq!(stage.get(Duration::ZERO, Err("it is broken")), 1);
        assert_eq!(stage.get(Duration::ZERO, Ok(2)), 2);
    }

    #[test]
    fn a_clock_that_is_set_back_keeps_no_broken_file() {
        let stage = Stage::new();
        stage.replace();
        assert_eq!(stage.get(2 * LATER, Err("it is broken")), 1);
        assert_eq!(stage.get(LATER, Ok(2)), 2);
    }
}
