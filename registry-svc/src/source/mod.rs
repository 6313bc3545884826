//! Where templates come from: directories of the project and the user, and the binary. The only part that reads files.
//!
//! A change on disk is served by the very next call. While the [`witness`] vouches that there is none, a call costs no
//! look at the disk at all ([`Sources::vouched`], which never blocks). Otherwise it looks ([`Sources::view`], for
//! blocking threads): where something changed, or nobody vouches, each directory and file costs one `stat`; content is
//! read only of files that changed.

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
/// How many catalogues are kept, one for each list of directories that some call resolved to.
const MAX_CATALOGS: usize = 256;

/// What applies to one working directory at one moment.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// The templates.
    pub(crate) catalog: Arc<Catalog>,
    /// The footer; blank: none.
    pub(crate) footer: Arc<str>,
}

/// Which templates are used, beside our own dialects in every scope.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    /// The foreign formats, in order of precedence.
    pub(crate) import: Vec<ForeignFormat>,
    /// Whether projects have a say.
    pub(crate) project_templates: ProjectTemplates,
    /// What their templates may say.
    pub(crate) rules: Rules,
    /// Directories that nothing is read from, whatever leads there.
    pub(crate) hidden: Vec<PathBuf>,
}

/// Every source, with what was read from it.
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
    /// The sources of a registry with that user scope and those workspace roots, our own dialects only.
    #[cfg(test)]
    pub(crate) fn open(home: Option<PathBuf>, roots: &[PathBuf]) -> Result<Self, (PathBuf, io::Error)> {
        Self::open_with(home, roots, Choice::default())
    }

    /// The sources of a registry with that user scope, those workspace roots and that choice of templates.
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

    /// The texts that every prompt shares.
    #[must_use]
    pub(crate) const fn texts(&self) -> &SharedTexts {
        &self.texts
    }

    /// What applies to a working directory, as the disk is now, if the witness can tell without a look at it. Never
    /// blocks.
    #[must_use]
    pub(crate) fn vouched(&self, cwd: Option<&str>) -> Option<View> {
        let kept = self.views.get(&cwd.map(str::to_owned))?;
        self.witness.vouches(&kept.pledge).then(|| kept.value.clone())
    }

    /// As [`Self::view_for`], for a caller that never leaves.
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

    /// The catalogue of these levels; the one that is there, if they are still the same.
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
                // Building one anew is cheap, as the parsed files stay; not worth a finer rule.
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

/// The formats, each once.
fn distinct(formats: Vec<ForeignFormat>) -> Vec<ForeignFormat> {
    let mut kept: Vec<ForeignFormat> = Vec::with_capacity(formats.len());
    for format in formats {
        if !kept.contains(&format) {
            kept.push(format);
        }
    }
    kept
}

/// What is looked for in each directory of a project and in a home, in order of precedence.
fn families(import: &[ForeignFormat]) -> Vec<Family> {
    let foreign = import.iter().copied().map(Family::Foreign);
    [Family::Roles, Family::Agents].into_iter().chain(foreign).collect()
}

/// The places that apply, in order of precedence: each directory of the project, then the user's; within one of these
/// roles, profiles with subagents, foreign agents. The user scope's directories are never also the project's.
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

/// Each file in one place only, the first: a link may make one directory of two.
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

/// The places of a family below a directory that exist.
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

/// Whether two lists of levels have the very same files and the same findings. Cheap: files are compared by address,
/// since the cache hands out the same one as long as nothing changed.
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
