//! The sources of templates: directories of the project and the user, and the binary. This is the only module that
//! reads files.
//!
//! The next call after a change on disk serves the change. While the [`witness`] guarantees that nothing changed, a
//! call does not access the disk ([`Sources::vouched`], which never blocks). Otherwise, the call checks the disk
//! ([`Sources::view`], for blocking threads). If something changed or the witness cannot guarantee the state, each
//! directory and file costs one `stat`, and content is read only from files that changed.

pub(crate) mod bundle;
mod cache;
mod directory;
mod embedded;
pub(crate) mod follow;
mod footer;
pub(crate) mod gather;
pub(crate) mod limits;
mod measures;
mod places;
mod pledged;
mod read;
pub(crate) mod seed;
mod turns;
mod walk;
mod wall;
mod witness;

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
        directory::{Directories, Place, TemplateDirectory},
        footer::Footers,
        measures::Measures,
        places::Whereabouts,
        pledged::PledgedCache,
        seed::SeedReport,
        walk::Project,
        wall::{Hidden, Wall},
        witness::{Look, Witness},
    },
};

/// Where roles are seeded in a home.
const ROLES: &str = ".codex/.agents";
/// Maximum number of cached catalogues. There is one for each list of directories that a call resolved to.
const MAX_CATALOGS: usize = 256;

/// The templates and the footer that apply to one working directory at one moment.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// The templates.
    pub(crate) catalog: Arc<Catalog>,
    /// The footer; blank: none.
    pub(crate) footer: Arc<str>,
}

/// The templates to use, in addition to Troupe's own dialects in every scope.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
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
    hidden: Hidden,
    directories: Directories,
    footers: Footers,
    catalogs: ArcSwap<HashMap<Vec<PathBuf>, Arc<Snapshot>>>,
    /// By working directory, as calls name it.
    views: PledgedCache<Option<String>, View>,
    witness: Witness,
    measures: Measures,
}

/// A catalogue and the levels that it was built from.
#[derive(Debug)]
struct Snapshot {
    levels: Vec<Level>,
    catalog: Arc<Catalog>,
}

impl Sources {
    /// Returns the sources of a registry with that user scope and those workspace roots, our own dialects only.
    #[cfg(test)]
    pub(crate) fn open(home: Option<PathBuf>, roots: &[PathBuf]) -> Result<Self, (PathBuf, io::Error)> {
        Self::open_with(home, roots, Choice::default())
    }

    /// Returns the sources of a registry with that user scope, those workspace roots and that choice of templates.
    ///
    /// # Errors
    ///
    /// The root that is not an existing directory.
    pub(crate) fn open_with(
        home: Option<PathBuf>,
        roots: &[PathBuf],
        choice: Choice,
    ) -> Result<Self, (PathBuf, io::Error)> {
        let canonical = |root: &PathBuf| match fs::canonicalize(root) {
            Ok(path) if path.is_dir() => Ok(path),
            Ok(_) => Err((root.clone(), io::ErrorKind::NotADirectory.into())),
            Err(error) => Err((root.clone(), error)),
        };
        let hidden = Hidden::new(choice.hidden);
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
            views: PledgedCache::default(),
            witness: Witness::default(),
            measures: Measures::default(),
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

    /// Returns the templates and the footer of a working directory in their present state, if the witness can guarantee
    /// them without disk access. Never blocks.
    #[must_use]
    pub(crate) fn vouched(&self, cwd: Option<&str>) -> Option<View> {
        let kept = self.views.get(&cwd.map(str::to_owned))?;
        self.witness.vouches(&kept.pledge).then(|| kept.value.clone())
    }

    /// Returns the same as [`Self::view_for`], for a caller that never disconnects.
    #[cfg(test)]
    pub(crate) fn view(&self, cwd: Option<&str>) -> Result<View, RegistryError> {
        self.view_for(cwd, &CancellationToken::new())
    }

    /// Returns the templates of a working directory, as they are on disk. Without a directory there is no project scope.
    /// Blocks on the disk. Once `abandoned` fires, no further file is read; files read so far stay cached.
    ///
    /// # Errors
    ///
    /// A bad working directory; see [`walk::project`]. [`RegistryError::Abandoned`].
    pub(crate) fn view_for(&self, cwd: Option<&str>, abandoned: &CancellationToken) -> Result<View, RegistryError> {
        if let Some(view) = self.vouched(cwd) {
            return Ok(view);
        }
        let mut look = self.witness.look();
        let view = self.look(cwd, &mut look, abandoned)?;
        if let Some(pledge) = look.done() {
            self.views.keep(cwd.map(str::to_owned), view.clone(), pledge);
        }
        Ok(view)
    }

    fn look(
        &self,
        cwd: Option<&str>,
        look: &mut Look<'_>,
        abandoned: &CancellationToken,
    ) -> Result<View, RegistryError> {
        let Whereabouts { project, home } = self.whereabouts(cwd, look)?;
        let mut key = Vec::new();
        let mut levels = Vec::new();
        for place in places(project.as_ref(), home.as_deref(), &self.import, &self.hidden) {
            if let Some(level) = self.directories.level(&place, look, abandoned) {
                key.push(place.directory.path);
                levels.push(level);
            }
        }
        if abandoned.is_cancelled() {
            return Err(RegistryError::Abandoned);
        }
        levels.extend(self.embedded.iter().cloned());
        let (footer, notes) = self.footers.find(project.as_ref(), home.as_deref(), look);
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
            && same(&snapshot.levels, &levels)
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
        self.measures.loaded(kept.values().map(|snapshot| &*snapshot.catalog));
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

/// Returns the families to look for in each directory of a project and in a home, in order of precedence.
fn families(import: &[ForeignFormat]) -> Vec<Family> {
    let foreign = import.iter().copied().map(Family::Foreign);
    [Family::Roles, Family::Agents].into_iter().chain(foreign).collect()
}

/// Returns the places that apply, in order of precedence: each directory of the project, then the user's; within one of
/// these roles, profiles with subagents, foreign agents. The user scope's directories are never also the project's.
fn places(project: Option<&Project>, home: Option<&Path>, import: &[ForeignFormat], hidden: &Hidden) -> Vec<Place> {
    let families = families(import);
    let of_home = |home: &Path| {
        let wall = Wall::around(home, hidden);
        let found = families.iter().flat_map(|family| at(home, &wall, Scope::User, *family));
        found.collect::<Vec<_>>()
    };
    let user = home.map_or_else(Vec::new, of_home);
    let mut places = Vec::new();
    if let Some(project) = project {
        let of_project = |base: &Path, family| {
            let wall = Wall::around(&project.top, hidden);
            at(base, &wall, Scope::Project, family)
        };
        let is_user = |place: &Place| user.iter().any(|user| user.directory.path == place.directory.path);
        for base in &project.directories {
            let found = families.iter().flat_map(|family| of_project(base, *family));
            places.extend(found.filter(|place| !is_user(place)));
        }
        places.extend(of_project(&project.top, Family::Graph));
    }
    places.extend(user);
    once(places)
}

/// Keeps the first of several places with the same directory. A link can make two directories identical.
fn once(places: Vec<Place>) -> Vec<Place> {
    let is_toml = |place: &Place| place.family == Family::Foreign(ForeignFormat::Codex);
    let mut kept: Vec<Place> = Vec::with_capacity(places.len());
    for place in places {
        let again =
            |earlier: &Place| earlier.directory.path == place.directory.path && is_toml(earlier) == is_toml(&place);
        if !kept.iter().any(again) {
            kept.push(place);
        }
    }
    kept
}

/// Returns the places of a family below a directory that exist.
fn at(base: &Path, wall: &Wall, scope: Scope, family: Family) -> Vec<Place> {
    let place = |place: &&str| {
        let at = base.join(place);
        let path = fs::canonicalize(&at).ok()?;
        let wall = wall.clone();
        let directory = TemplateDirectory { path, scope, wall };
        Some(Place { at, directory, family })
    };
    family.places(scope).iter().filter_map(place).collect()
}

/// Returns whether two lists of levels have identical files and findings. The check is cheap: files are compared by
/// address, because the cache returns the same value for an unchanged file.
fn same(ours: &[Level], theirs: &[Level]) -> bool {
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
