//! Seeding: copies of the embedded templates in the user scope, as a starting point to edit.
//!
//! A manifest in the same directory records which files were written. It allows an interrupted seeding to be completed
//! and an unedited copy to be upgraded. An edited copy is never changed. Each file is replaced atomically by a rename.

use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::domain::digest::Digest;

/// The name of the manifest.
const MANIFEST: &str = ".troupe-seed.json";

/// A file to be seeded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeedFile {
    /// The name in the directory.
    pub(crate) name: &'static str,
    /// The content.
    pub(crate) text: &'static str,
}

/// The result of seeding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeedReport {
    /// Files that were written for the first time.
    pub written: Vec<PathBuf>,
    /// Unedited copies that were updated to this release's text.
    pub upgraded: Vec<PathBuf>,
    /// Edited copies of an older text. They differ from this release's text and shadow it.
    pub outdated: Vec<PathBuf>,
    /// Failures, one sentence for each directory. Seeding is optional, so they are only warnings.
    pub warnings: Vec<String>,
}

impl SeedReport {
    /// Logs the results that need attention.
    pub(crate) fn log(&self) {
        for warning in &self.warnings {
            tracing::warn!("{warning}");
        }
        if !self.outdated.is_empty() {
            let files: Vec<_> = self.outdated.iter().map(|path| path.display().to_string()).collect();
            tracing::info!(
                files = %files.join(", "),
                "edited copies of embedded files are based on an older release and shadow the current embedded files; \
                 delete a copy to use the embedded file"
            );
        }
    }
}

/// The record of the files that were seeded into a directory.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Manifest {
    /// False until the first seeding is finished. Upgrades do not reset it.
    complete: bool,
    /// The digest of the seeded content, by file name.
    files: BTreeMap<String, String>,
}

/// The state of a seeded file's path.
enum Existing {
    Absent,
    File(Digest),
    /// A link or a directory, which seeding never creates.
    Other,
}

/// Seeds one directory. Does nothing if the directory has no manifest but already contains one of the files.
pub(crate) fn seed(directory: &Path, files: &[SeedFile], report: &mut SeedReport) {
    if let Err(error) = try_seed(directory, files, report) {
        report
            .warnings
            .push(format!("cannot seed {}: {error}", directory.display()));
    }
}

fn try_seed(directory: &Path, files: &[SeedFile], report: &mut SeedReport) -> io::Result<()> {
    let mut targets = Vec::with_capacity(files.len());
    for file in files {
        targets.push((file, existing(&directory.join(file.name))?));
    }
    let is_empty = targets.iter().all(|(_, existing)| matches!(existing, Existing::Absent));
    let mut manifest = match read_manifest(directory)? {
        // Also applies if all copies were deleted: a directory with none of the files is always seeded.
        _ if is_empty => Manifest::default(),
        Some(manifest) => manifest,
        None => return Ok(()),
    };

    if !manifest.complete {
        fs::create_dir_all(directory)?;
        for (file, existing) in &targets {
            if matches!(existing, Existing::Absent) {
                manifest.files.insert(file.name.to_owned(), digest(file).to_string());
            }
        }
        write_manifest(directory, &manifest)?;
    }
    for (file, existing) in &targets {
        update(directory, file, existing, &mut manifest, report)?;
    }
    manifest.complete = true;
    write_manifest(directory, &manifest)
}

/// Updates one file to this release's text, unless its owner changed it.
fn update(
    directory: &Path,
    file: &SeedFile,
    existing: &Existing,
    manifest: &mut Manifest,
    report: &mut SeedReport,
) -> io::Result<()> {
    let path = directory.join(file.name);
    let embedded = digest(file);
    let seeded = manifest.files.get(file.name).and_then(|text| Digest::parse(text));
    match existing {
        // In a complete seed, an absent file was deleted by its owner, or added by a later release. Neither is written.
        Existing::Absent if manifest.complete => Ok(()),
        Existing::Absent => {
            replace(&path, file.text)?;
            report.written.push(path);
            Ok(())
        }
        Existing::File(content) if *content == embedded => {
            manifest.files.insert(file.name.to_owned(), embedded.to_string());
            Ok(())
        }
        Existing::File(content) if seeded.as_ref() == Some(content) => {
            replace(&path, file.text)?;
            manifest.files.insert(file.name.to_owned(), embedded.to_string());
            report.upgraded.push(path);
            Ok(())
        }
        Existing::File(_) | Existing::Other => {
            if seeded.is_some_and(|seeded| seeded != embedded) {
                report.outdated.push(path);
            }
            Ok(())
        }
    }
}

fn digest(file: &SeedFile) -> Digest {
    Digest::of(file.text.as_bytes())
}

fn existing(path: &Path) -> io::Result<Existing> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_file() => Ok(Existing::File(Digest::of(&fs::read(path)?))),
        Ok(_) => Ok(Existing::Other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Existing::Absent),
        Err(error) => Err(error),
    }
}

fn read_manifest(directory: &Path) -> io::Result<Option<Manifest>> {
    match fs::read(directory.join(MANIFEST)) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the manifest if it has changed.
fn write_manifest(directory: &Path, manifest: &Manifest) -> io::Result<()> {
    let path = directory.join(MANIFEST);
    let text = serde_json::to_string_pretty(manifest).map_err(io::Error::other)? + "\n";
    match fs::read_to_string(&path) {
        Ok(present) if present == text => Ok(()),
        Ok(_) | Err(_) => replace(&path, &text),
    }
}

/// Replaces a file atomically: readers see either the old content or the new content.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let permissions = Permissions::from_mode(0o666);
    let mut file = tempfile::Builder::new()
        .permissions(permissions)
        .tempfile_in(directory)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &[SeedFile] = &[file("a.md", "a1"), file("b.md", "b1")];
    const NEW: &[SeedFile] = &[file("a.md", "a2"), file("b.md", "b2")];

    const fn file(name: &'static str, text: &'static str) -> SeedFile {
        SeedFile { name, text }
    }

    struct Home(tempfile::TempDir);

    impl Home {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn directory(&self) -> PathBuf {
            self.0.path().join("deep/er")
        }

        fn seed(&self, files: &[SeedFile]) -> SeedReport {
            let mut report = SeedReport::default();
            seed(&self.directory(), files, &mut report);
            report
        }

        fn write(&self, name: &str, text: &str) {
            fs::create_dir_all(self.directory()).unwrap();
            fs::write(self.directory().join(name), text).unwrap();
        }

        fn read(&self, name: &str) -> Option<String> {
            fs::read_to_string(self.directory().join(name)).ok()
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory().join(name)
        }
    }

    #[test]
    fn empty_home_gets_all_templates() {
        let home = Home::new();
        assert_eq!(home.seed(OLD).written, [home.path("a.md"), home.path("b.md")]);
        assert_eq!(home.read("a.md").unwrap(), "a1");
        assert_eq!(fs::read_dir(home.directory()).unwrap().count(), 3);
        assert_eq!(home.seed(OLD), SeedReport::default());
    }

    #[test]
    fn home_with_same_file_name_is_unchanged() {
        let home = Home::new();
        home.write("a.md", "mine");
        assert_eq!(home.seed(OLD), SeedReport::default());
        assert_eq!(home.read("b.md"), None);
    }

    #[test]
    fn home_with_other_files_is_seeded() {
        let home = Home::new();
        home.write("other.md", "mine");
        assert_eq!(home.seed(OLD).written.len(), 2);
        assert_eq!(home.read("other.md").unwrap(), "mine");
    }

    #[test]
    fn unfinished_seed_is_completed() {
        let home = Home::new();
        home.seed(OLD);
        let manifest = home.read(MANIFEST).unwrap().replace("true", "false");
        home.write(MANIFEST, &manifest);
        fs::remove_file(home.path("b.md")).unwrap();
        assert_eq!(home.seed(OLD).written, [home.path("b.md")]);
    }

    #[test]
    fn deleted_copy_returns_only_if_all_are_deleted() {
        let home = Home::new();
        home.seed(OLD);
        fs::remove_file(home.path("b.md")).unwrap();
        assert_eq!(home.seed(OLD), SeedReport::default());
        assert_eq!(home.read("b.md"), None);
        fs::remove_file(home.path("a.md")).unwrap();
        assert_eq!(home.seed(OLD).written.len(), 2);
    }

    #[test]
    fn upgrade_replaces_only_unedited_copies() {
        let home = Home::new();
        home.seed(OLD);
        home.write("b.md", "mine");
        let report = home.seed(NEW);
        assert_eq!(report.upgraded, [home.path("a.md")]);
        assert_eq!(report.outdated, [home.path("b.md")]);
        assert_eq!(home.read("a.md").unwrap(), "a2");
        assert_eq!(home.read("b.md").unwrap(), "mine");
        // An outdated copy is reported at every start until it is deleted or has this release's text.
        assert_eq!(home.seed(NEW).outdated, [home.path("b.md")]);
    }

    #[test]
    fn seed_failure_is_one_warning() {
        let home = Home::new();
        fs::write(home.0.path().join("deep"), "a file in the way").unwrap();
        let report = home.seed(OLD);
        assert_eq!(report.warnings.len(), 1);
        assert!(report.written.is_empty());
    }
}
