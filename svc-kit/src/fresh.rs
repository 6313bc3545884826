//! A value that is made of files, and made anew when they have changed. Nobody watches them: whoever asks looks.
//!
//! Files that look as before are not read again, unless they had been written so shortly before they were read that a later
//! write may look the same. What cannot be used is read again when it looks different, and otherwise once a second.

use std::{
    fmt::Display,
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use crate::stamp::Stamp;

/// How long files that could not be used are left alone while they look the same: what was wrong need not be the files.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A value and the files that it is made of.
#[derive(Debug)]
pub(crate) struct Fresh<T> {
    files: Vec<PathBuf>,
    present: Mutex<Present<T>>,
}

#[derive(Debug)]
struct Present<T> {
    value: Arc<T>,
    /// At the files that it was made of.
    seen: Look,
    /// At those of which none could be made since.
    failed: Option<Look>,
}

/// How files looked, and when: before they were read, so that a write during that counts as later.
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

    /// Whether the files hold what they held then if this is how they look now.
    fn tells_of(&self, now: &Self) -> bool {
        let mut present = self.stamps.iter().flatten();
        self.stamps == now.stamps && present.all(|stamp| stamp.is_settled(self.at))
    }

    /// Whether it was a moment ago. Not so if the clock was set back since.
    fn is_recent(&self, now: &Self) -> bool {
        let passed = now.at.duration_since(self.at);
        passed.is_ok_and(|passed| passed < TRY_AGAIN_AFTER)
    }
}

impl<T> Fresh<T> {
    /// Makes the value for the first time.
    ///
    /// # Errors
    ///
    /// Those of making it.
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

    /// The value of the files as they are now; the one before if theirs cannot be made. Waits for a disk if they changed.
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
                // Two files that belong together are replaced one after the other. Said once, not to each who asks.
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

    /// A file, what it is made into, and how often it was read.
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

        /// Puts another file in its place.
        fn replace(&self) {
            let aside = self.directory.path().join("aside");
            fs::write(&aside, "another").unwrap();
            fs::rename(aside, self.directory.path().join("file")).unwrap();
        }

        /// What is answered so long after the beginning, where the file says this.
        fn get(&self, after: Duration, says: Result<u32, &str>) -> u32 {
            let read = || {
                self.reads.set(self.reads.get() + 1);
                says
            };
            *self.fresh.get_at(self.began + after, read)
        }
    }

    /// By then whatever a test writes is settled.
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
