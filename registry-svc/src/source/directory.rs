//! Reads the template files of one directory, and of its subdirectories if the family uses them.

#[cfg(test)]
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{
    ffi::OsString,
    fs::{self, Metadata},
    io,
    ops::Deref,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use futures::executor;
use svc_kit::stamp::Stamp;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    domain::{
        catalog::Level,
        diagnostic::{Diagnostic, Finding},
        dialect::Dialect,
        encoding,
        family::{Family, FileText},
        finding_kind::FindingKind,
        graph,
        name::TemplateName,
        role,
        rules::Rules,
        template::{Parsed, Scope, TemplateFile},
    },
    source::{
        boundary::Boundary,
        budget::{MAX_BYTES, WorkBudget},
        cache::StampedCache,
        guarded::GuardedCache,
        read::{self, MAX_FILE_BYTES, Unreadable},
        tracker::Scan,
    },
};

/// Maximum number of entries in a directory. A larger directory is not read at all, because reading an arbitrary part
/// of it would be unpredictable.
pub(super) const MAX_ENTRIES: usize = 2_000;

/// Maximum number of subdirectories in a location. A location with more is not read at all.
pub(super) const MAX_FOLDERS: usize = 256;

/// A directory that may hold templates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TemplateDirectory {
    /// The canonical path.
    pub(crate) path: PathBuf,
    /// The scope of its templates.
    pub(crate) scope: Scope,
    /// The boundary that links of the directory and its files must not leave.
    pub(crate) boundary: Boundary,
}

/// A directory and the family of the templates that are read from it. One directory can have several locations, because
/// Codex keeps its own roles next to profiles.
#[derive(Clone, Debug)]
pub(crate) struct Location {
    /// The path of the directory before links are followed.
    pub(crate) at: PathBuf,
    /// The directory.
    pub(crate) directory: TemplateDirectory,
    /// The kind of templates in the directory.
    pub(crate) family: Family,
}

/// The template file behind a claimed name, or a diagnostic for the author if the file claims no name.
type Claim = Result<Arc<TemplateFile>, Diagnostic>;

/// Reads directories and caches the results. A cached template is keyed by everything that it depends on except for its
/// bytes and the rules, which are the same for all templates: directory, scope, boundary and family.
#[derive(Debug)]
pub(crate) struct Directories {
    rules: Rules,
    levels: GuardedCache<(TemplateDirectory, Family), Level>,
    listings: StampedCache<PathBuf, Result<Listing, String>>,
    files: StampedCache<FileKey, Loaded>,
    /// Limits how many threads parse at the same time. They are admitted in order of arrival, so a large directory
    /// delays another directory by at most one file.
    parsing: Semaphore,
    /// The number of files that were parsed.
    #[cfg(test)]
    parsed: AtomicUsize,
}

/// The location of a file, the path of the file below the location, and whether the file is parsed. A file is not
/// parsed if the work budget is exhausted.
type FileKey = (TemplateDirectory, Family, PathBuf, bool);

/// A file after parsing, and the part of the work budget that it uses.
#[derive(Clone, Debug, PartialEq)]
struct Loaded {
    claim: Claim,
    work: usize,
}

/// The entries of a directory, sorted by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    /// The files that may be templates.
    files: Vec<Listed>,
    /// The subdirectories. Links are excluded because they could form a cycle.
    folders: Vec<OsString>,
}

/// A file that may be a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// The path below the location.
    pub(super) below: PathBuf,
    is_link: bool,
}

/// The current state of a file.
#[derive(Debug)]
struct ScannedFile<'a> {
    below: &'a Path,
    path: PathBuf,
    stem: String,
    metadata: io::Result<Metadata>,
}

/// A file in a listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Listed {
    name: OsString,
    is_link: bool,
}

impl Directories {
    /// Creates an empty cache. The rules apply to all templates.
    #[must_use]
    pub(crate) fn new(rules: Rules) -> Self {
        // One core is left for calls that parse nothing.
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self {
            rules,
            levels: GuardedCache::default(),
            listings: StampedCache::default(),
            files: StampedCache::default(),
            parsing: Semaphore::new(cores.saturating_sub(1).max(1)),
            #[cfg(test)]
            parsed: AtomicUsize::default(),
        }
    }

    /// Returns the templates of a directory; `None` if the directory does not exist. Unchanged files are not read
    /// again. Once `abandoned` fires, the result is incomplete and is not cached.
    #[must_use]
    pub(crate) fn level(
        &self,
        location: &Location,
        scan: &mut Scan<'_>,
        abandoned: &CancellationToken,
    ) -> Option<Level> {
        let key = (location.directory.clone(), location.family);
        if let Some(kept) = self.levels.get(&key)
            && scan.reuse(&kept.guard)
        {
            return Some(kept.value.clone());
        }
        let mut part = scan.part();
        let level = self.read(location, &mut part, abandoned)?;
        if abandoned.is_cancelled() {
            part.mark_unreliable();
        }
        match part.finish() {
            Some(guard) => {
                scan.include(&guard);
                self.levels.insert(key, level.clone(), guard);
            }
            None => scan.mark_unreliable(),
        }
        Some(level)
    }

    fn read(&self, location: &Location, scan: &mut Scan<'_>, abandoned: &CancellationToken) -> Option<Level> {
        let directory = &location.directory;
        scan.observe_entries(&directory.path);
        fs::metadata(&directory.path).ok().filter(fs::Metadata::is_dir)?;
        let mut level = Level::default();
        if !directory.boundary.contains(&directory.path) {
            level.notes.push(note(
                &directory.path,
                None,
                Finding::error(FindingKind::Unreadable, None, Unreadable::OutsideBoundary.to_string()),
            ));
            return Some(level);
        }
        let found = candidates(location, |folder| {
            scan.observe_entries(folder);
            let metadata = fs::metadata(folder).ok()?;
            let stamp = Stamp::of(&metadata);
            Some(self.listings.get(folder.to_owned(), stamp, |folder| list(folder)))
        });
        let found = found.and_then(|files| self.add(location, &files, scan, abandoned, &mut level));
        if let Err((path, why)) = found {
            level
                .notes
                .push(note(&path, None, Finding::error(FindingKind::Unreadable, None, why)));
        }
        sort_by_dialect(&mut level);
        Some(level)
    }

    /// Returns the templates of uploaded files, given as paths below the directory and bytes, in order of path. Does
    /// not access the disk or the cache.
    #[must_use]
    pub(crate) fn uploaded<'a>(
        &self,
        location: &Location,
        files: impl IntoIterator<Item = (&'a str, &'a [u8])>,
        budget: &mut WorkBudget,
    ) -> Level {
        let mut level = Level::default();
        for (below, bytes) in files {
            let Some(stem) = location.family.stem(below) else {
                continue;
            };
            let path = location.directory.path.join(below);
            let text = if budget.is_left() {
                encoding::decode(bytes).map(str::to_owned).map_err(Unreadable::from)
            } else {
                Err(Unreadable::Budget)
            };
            let loaded = self.load(location, &stem, &path, text);
            budget.spend(loaded.work);
            add_claim(&loaded.claim, &mut level);
        }
        sort_by_dialect(&mut level);
        level
    }

    /// Adds the files of a location.
    ///
    /// # Errors
    ///
    /// The directory whose files are all rejected, and the reason, worded for the owner of the directory.
    fn add(
        &self,
        location: &Location,
        files: &[Candidate],
        scan: &mut Scan<'_>,
        abandoned: &CancellationToken,
        level: &mut Level,
    ) -> Result<(), (PathBuf, String)> {
        let found = files.iter().filter_map(|file| ScannedFile::scan(location, file, scan));
        let found: Vec<ScannedFile<'_>> = found.collect();
        if found.iter().map(ScannedFile::bytes).sum::<u64>() > MAX_BYTES as u64 {
            let why = format!("the files of the directory have over {MAX_BYTES} bytes; none of them is used");
            return Err((location.directory.path.clone(), why));
        }
        let mut budget = WorkBudget::default();
        for file in &found {
            if abandoned.is_cancelled() {
                break;
            }
            self.add_file(location, file, &mut budget, level);
        }
        Ok(())
    }

    fn add_file(&self, location: &Location, file: &ScannedFile<'_>, budget: &mut WorkBudget, level: &mut Level) {
        let directory = &location.directory;
        let is_parsed = budget.is_left();
        let load = || {
            let text = if is_parsed {
                read::text(&file.path, &directory.boundary)
            } else {
                Err(Unreadable::Budget)
            };
            self.load(location, &file.stem, &file.path, text)
        };
        match &file.metadata {
            // A directory is never a template.
            Ok(metadata) if metadata.is_dir() => {}
            Ok(metadata) => {
                let key = (directory.clone(), location.family, file.below.to_owned(), is_parsed);
                let loaded = self.files.get(key, Stamp::of(metadata), |_| load());
                budget.spend(loaded.work);
                add_claim(&loaded.claim, level);
            }
            // The file was removed after the directory was listed.
            Err(_) if fs::symlink_metadata(&file.path).is_err() => {}
            // A link that is dangling or must not be followed.
            Err(_) => add_claim(&load().claim, level),
        }
    }

    /// Returns how many files were parsed.
    #[cfg(test)]
    pub(super) fn parsed(&self) -> usize {
        self.parsed.load(Ordering::Relaxed)
    }

    /// Parses a file's text. Without a text the file keeps its name and has an error. Waits for a permit to parse.
    fn load(&self, location: &Location, stem: &str, path: &Path, text: Result<String, Unreadable>) -> Loaded {
        let path = path.display().to_string();
        let text = text.map_err(|refused| refused.to_string());
        let file = FileText {
            path: &path,
            stem,
            scope: location.directory.scope,
            text: text.as_deref().map_err(String::as_str),
        };
        let work = text.as_deref().map_or(0, |text| location.family.work(text));
        // Held until the file is parsed. The semaphore is never closed.
        let _permit = text.is_ok().then(|| executor::block_on(self.parsing.acquire()));
        #[cfg(test)]
        self.parsed.fetch_add(usize::from(text.is_ok()), Ordering::Relaxed);
        Loaded {
            claim: location.family.read(file, &self.rules).map(Arc::new),
            work,
        }
    }
}

impl<'a> ScannedFile<'a> {
    /// Returns the state of a file, or `None` if it is not a template.
    fn scan(location: &Location, file: &'a Candidate, scan: &mut Scan<'_>) -> Option<Self> {
        let stem = location.family.stem(&file.below.to_string_lossy())?.into_owned();
        let path = location.directory.path.join(&file.below);
        Some(Self {
            below: &file.below,
            stem,
            metadata: read::metadata(&path, file.is_link, scan),
            path,
        })
    }

    /// Returns the number of bytes that would be read; 0 for a rejected file.
    fn bytes(&self) -> u64 {
        match &self.metadata {
            Ok(metadata) if metadata.is_file() && metadata.len() <= MAX_FILE_BYTES => metadata.len(),
            Ok(_) | Err(_) => 0,
        }
    }
}

/// Adds a parsed file to the level.
fn add_claim(claim: &Claim, level: &mut Level) {
    match claim {
        Ok(file) => level.files.push(Arc::clone(file)),
        Err(note) => level.notes.push(note.clone()),
    }
}

/// Sorts profiles before subagents. Files of the same dialect stay in order of path.
fn sort_by_dialect(level: &mut Level) {
    level.files.sort_by_key(|file| file.dialect);
}

/// Returns the files of a location that may be templates, in order of path. `list` reads one directory and returns
/// `None` if the directory does not exist.
///
/// # Errors
///
/// The directory whose files are all rejected, and the reason, worded for the owner of the directory.
pub(super) fn candidates<L>(
    location: &Location,
    mut list: impl FnMut(&Path) -> Option<L>,
) -> Result<Vec<Candidate>, (PathBuf, String)>
where
    L: Deref<Target = Result<Listing, String>>,
{
    let top = &location.directory.path;
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    let mut count = 0;
    while let Some(folder) = folders.pop() {
        let path = top.join(&folder);
        let Some(listing) = list(&path) else { continue };
        let listing = listing.as_ref().map_err(|why| (path, why.clone()))?;
        found.extend(listing.files.iter().map(|file| Candidate {
            below: folder.join(&file.name),
            is_link: file.is_link,
        }));
        if location.family.has_folders() {
            folders.extend(listing.folders.iter().map(|name| folder.join(name)));
            count += listing.folders.len();
            if count > MAX_FOLDERS || found.len() > MAX_ENTRIES {
                let why = format!(
                    "the directory has over {MAX_FOLDERS} folders, or over {MAX_ENTRIES} files in them; none of its \
                     templates is used"
                );
                return Err((top.clone(), why));
            }
        }
    }
    // Compared as bytes, like the paths of a bundle, so that `a-b.md` and `a/b.md` have the same order on disk and in a
    // bundle.
    found.sort_by(|one, other| one.below.as_os_str().cmp(other.below.as_os_str()));
    Ok(found)
}

/// Lists a directory: the files that may be templates, and the subdirectories.
///
/// # Errors
///
/// The reason why no file of the directory is used, worded for the owner of the directory.
pub(super) fn list(directory: &Path) -> Result<Listing, String> {
    let unreadable = |error: io::Error| format!("the directory cannot be read: {error}");
    let mut listing = Listing::default();
    for (count, entry) in fs::read_dir(directory).map_err(unreadable)?.enumerate() {
        if count >= MAX_ENTRIES {
            return Err(format!(
                "the directory has over {MAX_ENTRIES} entries; none of its templates is used"
            ));
        }
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name();
        // An entry that was removed in the meantime is detected later.
        let kind = entry.file_type();
        if kind.as_ref().is_ok_and(fs::FileType::is_dir) {
            listing.folders.push(name);
        } else if is_candidate(Path::new(&name)) {
            let is_link = kind.is_ok_and(|kind| kind.is_symlink());
            listing.files.push(Listed { name, is_link });
        }
    }
    listing.files.sort();
    listing.folders.sort();
    Ok(listing)
}

/// Returns whether a name has the suffix of any family's template files.
fn is_candidate(name: &Path) -> bool {
    let endings = ["md", "toml"];
    name.extension()
        .is_some_and(|extension| endings.iter().any(|ending| extension.eq_ignore_ascii_case(ending)))
}

/// Parses the text of an embedded file: a role or a graph template.
pub(crate) fn parse(name: &TemplateName, text: &str) -> Parsed {
    match name {
        TemplateName::AgentType(name) => role::parse(name, text),
        TemplateName::RoleTemplate(name) => graph::parse_named(name, text),
    }
}

/// Returns a finding about a file or a directory.
pub(super) fn note(path: &Path, dialect: Option<Dialect>, finding: Finding) -> Diagnostic {
    Diagnostic {
        path: path.display().to_string(),
        dialect,
        finding,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::{
        domain::foreign::ForeignFormat,
        source::{boundary::HiddenDirectories, temp_tree::TempTree, tracker::ChangeTracker},
    };

    const PROFILE: &str = "---\nagent_type: both\ndescription: d\nmodel: m\ncolor: red\n---\nx";

    /// Returns a directory as a location with a boundary around another directory.
    fn location(path: &Path, scope: Scope, around: &Path, family: Family) -> Location {
        let directory = TemplateDirectory {
            path: path.to_owned(),
            scope,
            boundary: Boundary::around(around, &HiddenDirectories::default()),
        };
        let at = path.to_owned();
        Location { at, directory, family }
    }

    fn level(base: &Path, family: Family) -> Level {
        let tracker = ChangeTracker::default();
        let location = location(base, Scope::Project, base, family);
        Directories::new(Rules::default())
            .level(&location, &mut tracker.scan(), &CancellationToken::new())
            .unwrap()
    }

    #[test]
    fn cached_level_depends_on_scope_boundary_and_family() {
        let tree = TempTree::new(&[]);
        let agents = tree.at("project/agents");
        tree.link(tree.write("a.md", PROFILE), "project/agents/a.md");
        let (directories, tracker) = (Directories::new(Rules::default()), ChangeTracker::default());
        let read = |location: &Location| {
            directories
                .level(location, &mut tracker.scan(), &CancellationToken::new())
                .unwrap()
        };
        // A result read under a guard is cached, but the next caller may have another boundary and scope.
        let wide = read(&location(&agents, Scope::User, &tree.base, Family::Agents));
        assert_eq!(wide.files[0].scope, Scope::User);
        assert!(wide.files[0].parsed.template.is_ok());
        let same = read(&location(&agents, Scope::Project, &tree.base, Family::Agents));
        assert_eq!(same.files[0].scope, Scope::Project);
        let narrow = read(&location(&agents, Scope::User, &agents, Family::Agents));
        assert!(narrow.files[0].parsed.template.is_err());
        let outside = read(&location(&agents, Scope::User, &agents.join("deeper"), Family::Agents));
        assert!(outside.files.is_empty() && outside.notes.len() == 1);
        let other = read(&location(
            &agents,
            Scope::User,
            &tree.base,
            Family::Foreign(ForeignFormat::ClaudeCode),
        ));
        assert_eq!(other.files[0].dialect, Dialect::Foreign);
    }

    #[test]
    fn directory_over_total_size_is_not_read() {
        let tree = TempTree::new(&[]);
        // Sparse files of the maximum size, so that the test writes no data.
        let file = |name: String, bytes: u64| File::create(tree.at(&name)).unwrap().set_len(bytes).unwrap();
        for number in 0..MAX_BYTES as u64 / MAX_FILE_BYTES {
            file(format!("{number}.md"), MAX_FILE_BYTES);
        }
        // Neither of these files would be read.
        file("large.md".to_owned(), MAX_FILE_BYTES + 1);
        file("notes.txt".to_owned(), 1);
        let before = level(&tree.base, Family::Roles);
        assert_eq!(before.files.len() as u64, MAX_BYTES as u64 / MAX_FILE_BYTES + 1);
        file("more.md".to_owned(), 1);
        let after = level(&tree.base, Family::Roles);
        assert!(after.files.is_empty());
        assert_eq!(
            after.notes[0].finding.message,
            "the files of the directory have over 16777216 bytes; none of them is used"
        );
    }

    #[test]
    fn unchanged_file_keeps_its_value() {
        let tree = TempTree::new(&[]);
        tree.write("a.md", PROFILE);
        let location = location(&tree.base, Scope::Project, &tree.base, Family::Agents);
        let (directories, tracker) = (Directories::new(Rules::default()), ChangeTracker::default());
        let read = || {
            let level = directories.level(&location, &mut tracker.scan(), &CancellationToken::new());
            level.unwrap().files.remove(0)
        };
        let before = read();
        assert!(Arc::ptr_eq(&before, &read()));
        tree.write("b.md", "---\nname: c\n---\nx");
        assert!(
            Arc::ptr_eq(&before, &read()),
            "the value is kept when the directory is read again"
        );
    }
}
