//! The sources of templates: directories of the project and the user, and the binary. This is the only module that
//! reads files.
//!
//! The next call after a change on disk serves the change. While the [`tracker`] guarantees that nothing changed, a
//! call does not access the disk ([`Sources::cached_view`], which never blocks). Otherwise, the call checks the disk
//! ([`Sources::view_for`], for blocking threads). If something changed or the tracker cannot guarantee the state, each
//! directory and file costs one `stat`, and content is read only from files that changed.

mod boundary;
mod budget;
pub(crate) mod bundle;
mod cache;
mod directory;
pub(crate) mod embedded;
mod footer;
pub(crate) mod gather;
pub(crate) mod guarded;
pub(crate) mod limits;
mod metrics;
mod read;
mod roots;
pub(crate) mod seed;
#[cfg(test)]
mod temp_tree;
mod tracker;
mod walk;

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;

use crate::{
    domain::{
        catalog::{Catalog, Level},
        error::RegistryError,
        family::Family,
        foreign::ForeignFormat,
        prompt::SharedTexts,
        rules::{ProjectTemplates, Rules},
        template::Scope,
    },
    source::{
        boundary::{Boundary, HiddenDirectories},
        directory::{Directories, Location, TemplateDirectory},
        footer::Footers,
        guarded::{Guarded, GuardedCache},
        metrics::Metrics,
        roots::SearchRoots,
        seed::SeedReport,
        tracker::{ChangeTracker, Scan},
        walk::Project,
    },
};

/// The directory in a home into which roles are seeded.
const ROLES: &str = ".codex/.agents";
/// Maximum number of cached catalogues. There is one for each list of directories that a call resolved to.
const MAX_CATALOGS: usize = 256;

/// The templates and the footer that apply to one working directory at one moment.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// The templates.
    pub(crate) catalog: Arc<Catalog>,
    /// The footer. Blank if it is disabled.
    pub(crate) footer: Arc<str>,
}

/// A view, and the handle with which a watcher waits for changes of the view.
#[derive(Clone, Debug)]
pub(crate) struct ObservedView {
    /// The current state.
    pub(crate) view: View,
    /// The handle. `None` if a change could cause no event.
    pub(crate) guarded: Option<Arc<Guarded<View>>>,
}

/// Options for the use of templates. Templates of Troupe's own dialects in the user's home and in the binary need no
/// option.
#[derive(Clone, Debug, Default)]
pub(crate) struct TemplateOptions {
    /// The foreign formats, in order of precedence.
    pub(crate) import: Vec<ForeignFormat>,
    /// Whether templates of projects are used.
    pub(crate) project_templates: ProjectTemplates,
    /// The rules for templates of projects.
    pub(crate) rules: Rules,
    /// Directories that are never read, even through links.
    pub(crate) hidden: Vec<PathBuf>,
}

/// All sources, and caches of the content read from them.
#[derive(Debug)]
pub(crate) struct Sources {
    home: Option<PathBuf>,
    /// Canonical.
    roots: Vec<PathBuf>,
    texts: SharedTexts,
    footer: Arc<str>,
    embedded: [Level; 2],
    import: Vec<ForeignFormat>,
    project_templates: ProjectTemplates,
    hidden: HiddenDirectories,
    directories: Directories,
    footers: Footers,
    catalogs: ArcSwap<HashMap<Vec<PathBuf>, Arc<Snapshot>>>,
    /// By working directory as given in calls.
    views: GuardedCache<Option<String>, View>,
    tracker: ChangeTracker,
    metrics: Metrics,
}

/// A catalogue and the levels that it was built from.
#[derive(Debug)]
struct Snapshot {
    levels: Vec<Level>,
    catalog: Arc<Catalog>,
}

impl Sources {
    /// Opens the sources with Troupe's own dialects only.
    #[cfg(test)]
    pub(crate) fn open(home: Option<PathBuf>, roots: &[PathBuf]) -> Result<Self, (PathBuf, io::Error)> {
        Self::open_with(home, roots, TemplateOptions::default())
    }

    /// Opens the sources of a registry with this user scope and these workspace roots.
    ///
    /// # Errors
    ///
    /// Returns the root that is not an existing directory, and the error of the operating system.
    pub(crate) fn open_with(
        home: Option<PathBuf>,
        roots: &[PathBuf],
        choice: TemplateOptions,
    ) -> Result<Self, (PathBuf, io::Error)> {
        let canonical = |root: &PathBuf| match fs::canonicalize(root) {
            Ok(path) if path.is_dir() => Ok(path),
            Ok(_) => Err((root.clone(), io::ErrorKind::NotADirectory.into())),
            Err(error) => Err((root.clone(), error)),
        };
        let hidden = HiddenDirectories::new(choice.hidden);
        Ok(Self {
            home,
            roots: roots.iter().map(canonical).collect::<Result<_, _>>()?,
            texts: embedded::texts(),
            footer: embedded::footer(),
            embedded: [embedded::roles(), embedded::graphs()],
            import: distinct(choice.import),
            project_templates: choice.project_templates,
            directories: Directories::new(choice.rules),
            footers: Footers::new(hidden.clone()),
            hidden,
            catalogs: ArcSwap::default(),
            views: GuardedCache::default(),
            tracker: ChangeTracker::default(),
            metrics: Metrics::default(),
        })
    }

    /// Copies the embedded roles and the footer into the user scope; see [`seed`].
    #[must_use]
    pub(crate) fn seed(&self) -> SeedReport {
        let mut report = SeedReport::default();
        if let Some(home) = &self.home {
            seed::seed(&home.join(ROLES), &embedded::role_files(), &mut report);
            seed::seed(&home.join(footer::DIRECTORY), &embedded::footer_files(), &mut report);
        }
        report
    }

    /// Returns the texts that every prompt shares.
    #[must_use]
    pub(crate) const fn texts(&self) -> &SharedTexts {
        &self.texts
    }

    /// Returns the templates and the footer of a working directory if the tracker can guarantee without disk access
    /// that they are current. Never blocks.
    #[must_use]
    pub(crate) fn cached_view(&self, cwd: Option<&str>) -> Option<View> {
        self.guarded_view(cwd).map(|guarded| guarded.value.clone())
    }

    fn guarded_view(&self, cwd: Option<&str>) -> Option<Arc<Guarded<View>>> {
        let guarded = self.views.get(&cwd.map(str::to_owned))?;
        self.tracker.is_current(&guarded.guard).then_some(guarded)
    }

    /// Returns the same as [`Self::view_for`], for a caller that never disconnects.
    #[cfg(test)]
    pub(crate) fn view(&self, cwd: Option<&str>) -> Result<View, RegistryError> {
        self.view_for(cwd, &CancellationToken::new())
    }

    /// Returns the templates of a working directory, as they are on disk. Without a directory there is no project
    /// scope. Blocks on the disk. Once `abandoned` fires, no further file is read; files read so far stay cached.
    ///
    /// # Errors
    ///
    /// If the working directory is invalid; see [`walk::project`]. [`RegistryError::Abandoned`] if `abandoned` fired.
    pub(crate) fn view_for(&self, cwd: Option<&str>, abandoned: &CancellationToken) -> Result<View, RegistryError> {
        self.observed_view(cwd, abandoned).map(|observed| observed.view)
    }

    /// Returns the same as [`Self::view_for`], with a handle for [`Self::changed`].
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::view_for`].
    pub(crate) fn observed_view(
        &self,
        cwd: Option<&str>,
        abandoned: &CancellationToken,
    ) -> Result<ObservedView, RegistryError> {
        if let Some(guarded) = self.guarded_view(cwd) {
            return Ok(ObservedView {
                view: guarded.value.clone(),
                guarded: Some(guarded),
            });
        }
        let mut scan = self.tracker.scan();
        let view = self.scan(cwd, &mut scan, abandoned)?;
        let guard = scan.finish();
        let guarded = guard.map(|guard| self.views.insert(cwd.map(str::to_owned), view.clone(), guard));
        Ok(ObservedView { view, guarded })
    }

    /// Waits until a view may have changed. Cancel safe.
    pub(crate) async fn changed(&self, view: &Guarded<View>) {
        self.tracker.changed(&view.guard).await;
    }

    fn scan(
        &self,
        cwd: Option<&str>,
        scan: &mut Scan<'_>,
        abandoned: &CancellationToken,
    ) -> Result<View, RegistryError> {
        let SearchRoots { project, home } = self.search_roots(cwd, scan)?;
        let mut key = Vec::new();
        let mut levels = Vec::new();
        for location in locations(project.as_ref(), home.as_deref(), &self.import, &self.hidden) {
            if let Some(level) = self.directories.level(&location, scan, abandoned) {
                key.push(location.directory.path);
                levels.push(level);
            }
        }
        if abandoned.is_cancelled() {
            return Err(RegistryError::Abandoned);
        }
        levels.extend(self.embedded.iter().cloned());
        let (footer, notes) = self.footers.find(project.as_ref(), home.as_deref(), scan);
        levels.push(Level {
            files: Vec::new(),
            notes,
        });
        Ok(View {
            catalog: self.catalog(key, levels),
            footer: footer.unwrap_or_else(|| Arc::clone(&self.footer)),
        })
    }

    /// Returns the catalogue of these levels. Reuses the cached catalogue if the levels are unchanged.
    fn catalog(&self, key: Vec<PathBuf>, levels: Vec<Level>) -> Arc<Catalog> {
        if let Some(snapshot) = self.catalogs.load().get(&key)
            && are_same(&snapshot.levels, &levels)
        {
            return Arc::clone(&snapshot.catalog);
        }
        let catalog = Arc::new(Catalog::build(&levels));
        let snapshot = Arc::new(Snapshot {
            levels,
            catalog: Arc::clone(&catalog),
        });
        self.catalogs.rcu(|catalogs| {
            let mut catalogs = HashMap::clone(catalogs);
            if catalogs.len() >= MAX_CATALOGS {
                // Rebuilding a catalogue is cheap because the parsed files stay cached, so a finer eviction rule is not
                // worthwhile.
                catalogs.clear();
            }
            catalogs.insert(key.clone(), Arc::clone(&snapshot));
            catalogs
        });
        let kept = self.catalogs.load();
        self.metrics.loaded(kept.values().map(|snapshot| &*snapshot.catalog));
        catalog
    }
}

/// Returns the formats, each once.
fn distinct(formats: Vec<ForeignFormat>) -> Vec<ForeignFormat> {
    let mut kept: Vec<ForeignFormat> = Vec::with_capacity(formats.len());
    for format in formats {
        if !kept.contains(&format) {
            kept.push(format);
        }
    }
    kept
}

/// Returns the families to scan for in each directory of a project and in a home, in order of precedence.
fn families(import: &[ForeignFormat]) -> Vec<Family> {
    let foreign = import.iter().copied().map(Family::Foreign);
    [Family::Roles, Family::Agents].into_iter().chain(foreign).collect()
}

/// Returns the locations that apply, in order of precedence: each directory of the project, then the home. Within each
/// of them, roles come first, then profiles with subagents, then foreign agents. Directories of the user scope are
/// never also directories of the project.
fn locations(
    project: Option<&Project>,
    home: Option<&Path>,
    import: &[ForeignFormat],
    hidden: &HiddenDirectories,
) -> Vec<Location> {
    let families = families(import);
    let of_home = |home: &Path| {
        let boundary = Boundary::around(home, hidden);
        let found = families
            .iter()
            .flat_map(|family| existing_locations(home, &boundary, Scope::User, *family));
        found.collect::<Vec<_>>()
    };
    let user = home.map_or_else(Vec::new, of_home);
    let mut locations = Vec::new();
    if let Some(project) = project {
        let of_project = |base: &Path, family| {
            let boundary = Boundary::around(&project.top, hidden);
            existing_locations(base, &boundary, Scope::Project, family)
        };
        let is_user = |location: &Location| user.iter().any(|user| user.directory.path == location.directory.path);
        for base in &project.directories {
            let found = families.iter().flat_map(|family| of_project(base, *family));
            locations.extend(found.filter(|location| !is_user(location)));
        }
        locations.extend(of_project(&project.top, Family::Graph));
    }
    locations.extend(user);
    deduplicated(locations)
}

/// Keeps the first of several locations with the same directory, because a link can make two directories identical.
/// Codex's own agents (TOML files) may share a directory with another family (Markdown files).
fn deduplicated(locations: Vec<Location>) -> Vec<Location> {
    let is_toml = |location: &Location| location.family == Family::Foreign(ForeignFormat::Codex);
    let mut kept: Vec<Location> = Vec::with_capacity(locations.len());
    for location in locations {
        let again = |earlier: &Location| {
            earlier.directory.path == location.directory.path && is_toml(earlier) == is_toml(&location)
        };
        if !kept.iter().any(again) {
            kept.push(location);
        }
    }
    kept
}

/// Returns the existing locations of a family below a directory.
fn existing_locations(base: &Path, boundary: &Boundary, scope: Scope, family: Family) -> Vec<Location> {
    let location = |location: &&str| {
        let at = base.join(location);
        let path = fs::canonicalize(&at).ok()?;
        let boundary = boundary.clone();
        let directory = TemplateDirectory { path, scope, boundary };
        Some(Location { at, directory, family })
    };
    family.directories(scope).iter().filter_map(location).collect()
}

/// Returns whether two lists of levels have identical files and findings. The check is cheap: files are compared by
/// address, because the cache returns the same value for an unchanged file.
fn are_same(ours: &[Level], theirs: &[Level]) -> bool {
    let level = |(one, other): (&Level, &Level)| {
        one.files.len() == other.files.len()
            && one
                .files
                .iter()
                .zip(&other.files)
                .all(|(one, other)| Arc::ptr_eq(one, other))
            && one.notes == other.notes
    };
    ours.len() == theirs.len() && ours.iter().zip(theirs).all(level)
}

#[cfg(test)]
mod tests;
