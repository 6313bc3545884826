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

/// The time after which unusable files with an unchanged stamp are read again. The cause of the failure may be
/// something other than the files.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A value and the files that it is built from.
#[derive(Debug)]
pub(crate) struct Fresh<T> {
    files: Vec<PathBuf>,
    present: Mutex<Loaded<T>>,
}

#[derive(Debug)]
struct Loaded<T> {
    value: Arc<T>,
    /// State of the files that the value was built from.
    seen: FileState,
    /// State of the files at the last failed rebuild since the value was built.
    failed: Option<FileState>,
}

/// The stamps of the files, and the time at which they were taken: before the read, so that a concurrent write counts
/// as later.
#[derive(Debug)]
struct FileState {
    stamps: Vec<Option<Stamp>>,
    at: SystemTime,
}

impl FileState {
    fn at(files: &[PathBuf], at: SystemTime) -> Self {
        let stamp = |path: &PathBuf| Some(Stamp::of(&fs::metadata(path).ok()?));
        Self {
            stamps: files.iter().map(stamp).collect(),
            at,
        }
    }

    /// Returns whether the files are certain to be unchanged between this state and the later state `now`.
    fn is_unchanged(&self, now: &Self) -> bool {
        let mut present = self.stamps.iter().flatten();
        self.stamps == now.stamps && present.all(|stamp| stamp.is_settled(self.at))
    }

    /// Returns whether the stamps were taken less than [`TRY_AGAIN_AFTER`] before `now`. Returns `false` if the clock
    /// was set back since then.
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
        let seen = FileState::at(&files, SystemTime::now());
        let present = Loaded {
            value: Arc::new(make()?),
            seen,
            failed: None,
        };
        Ok(Self {
            files,
            present: Mutex::new(present),
        })
    }

    /// Returns the value of the current files, or the previous value if they cannot be used. Blocks on disk access: it
    /// always reads the metadata of the files, and their content if they changed.
    pub(crate) fn get<E: Display>(&self, make: impl FnOnce() -> Result<T, E>) -> Arc<T> {
        self.get_at(SystemTime::now(), make)
    }

    fn get_at<E: Display>(&self, now: SystemTime, make: impl FnOnce() -> Result<T, E>) -> Arc<T> {
        let state = FileState::at(&self.files, now);
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known_to_fail = |failed: &FileState| failed.is_unchanged(&state) && failed.is_recent(&state);
        if present.seen.is_unchanged(&state) || present.failed.as_ref().is_some_and(is_known_to_fail) {
            return Arc::clone(&present.value);
        }
        match make() {
            Ok(value) => {
                if state.stamps != present.seen.stamps {
                    tracing::info!(files = ?self.files, "files reloaded");
                }
                *present = Loaded {
                    value: Arc::new(value),
                    seen: state,
                    failed: None,
                };
            }
            Err(error) => {
                // Files that belong together are replaced one after the other, so a mismatch may be temporary. Log it
                // once, not on every access.
                let is_new_failure = present
                    .failed
                    .as_ref()
                    .is_none_or(|failed| failed.stamps != state.stamps);
                if is_new_failure {
                    tracing::warn!(%error, files = ?self.files, "reload failed; using the previous content");
                }
                present.failed = Some(state);
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
    struct Fixture {
        directory: TempDir,
        fresh: Fresh<u32>,
        began: SystemTime,
        reads: Cell<u32>,
    }

    impl Fixture {
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

        /// Returns the value at the time `after` after the start. If the file is read, the result is `says`.
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
    fn recent_file_is_read_until_its_stamp_is_settled() {
        let fixture = Fixture::new();
        assert_eq!(
            fixture.get(Duration::ZERO, Ok(2)),
            2,
            "a write within one tick of the clock"
        );
        assert_eq!(fixture.get(LATER, Ok(3)), 3, "it was not settled when it was read");
        assert_eq!(fixture.get(LATER, Ok(4)), 3);
        assert_eq!(fixture.reads.get(), 2);
    }

    #[test]
    fn broken_file_is_not_read_on_each_access() {
        let fixture = Fixture::new();
        assert_eq!(fixture.get(LATER, Ok(1)), 1);
        fixture.replace();
        for _ in 0..3 {
            assert_eq!(fixture.get(LATER, Err("it is broken")), 1);
        }
        assert_eq!(fixture.reads.get(), 2);
        assert_eq!(
            fixture.get(LATER + 2 * TRY_AGAIN_AFTER, Ok(2)),
            2,
            "it was not the file"
        );
        fixture.replace();
        assert_eq!(fixture.get(LATER, Ok(3)), 3, "its stamp differs");
        assert_eq!(fixture.reads.get(), 4);
    }

    #[test]
    fn recent_broken_file_is_read_again() {
        let fixture = Fixture::new();
        fixture.replace();
        assert_eq!(fixture.get(Duration::ZERO, Err("it is broken")), 1);
        assert_eq!(fixture.get(Duration::ZERO, Ok(2)), 2);
    }

    #[test]
    fn clock_set_back_does_not_block_reload() {
        let fixture = Fixture::new();
        fixture.replace();
        assert_eq!(fixture.get(2 * LATER, Err("it is broken")), 1);
        assert_eq!(fixture.get(LATER, Ok(2)), 2);
    }
}
