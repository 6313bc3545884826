//! Where templates come from: directories of the project and the user, and the binary. The only part that reads files.
//!
//! Everything here blocks; `grpc/` calls it from blocking threads. A call on a warm cache costs one `stat` for each
//! directory and file that applies and reads no content.

mod cache;
mod directory;
mod embedded;
mod footer;
mod read;
pub(crate) mod seed;
mod stamp;
mod walk;

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use arc_swap::ArcSwap;

use crate::{
    domain::{
        catalog::{Catalog, Level},
        error::RegistryError,
        prompt::SharedTexts,
        template::{Dialect, Scope},
    },
    source::{
        directory::{Directories, TemplateDirectory},
        footer::Footers,
        seed::SeedReport,
        walk::Project,
    },
};

/// Where roles lie in a project and in a home.
const ROLES: &str = ".codex/.agents";
/// Where graph templates lie in a project's root.
const GRAPHS: &str = "docs/templates";
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

/// Every source, with what was read from it.
#[derive(Debug)]
pub(crate) struct Sources {
    home: Option<PathBuf>,
    /// Canonical.
    roots: Vec<PathBuf>,
    texts: SharedTexts,
    footer: Arc<str>,
    embedded: [Level; 2],
    directories: Directories,
    footers: Footers,
    catalogs: ArcSwap<HashMap<Vec<PathBuf>, Arc<Snapshot>>>,
}

/// A catalogue and the levels that it was built from.
#[derive(Debug)]
struct Snapshot {
    levels: Vec<Level>,
    catalog: Arc<Catalog>,
}

impl Sources {
    /// The sources of a registry with that user scope and those workspace roots.
    ///
    /// # Errors
    ///
    /// The root that is not an existing directory.
    pub(crate) fn open(home: Option<PathBuf>, roots: &[PathBuf]) -> Result<Self, (PathBuf, io::Error)> {
        let canonical = |root: &PathBuf| match fs::canonicalize(root) {
            Ok(path) if path.is_dir() => Ok(path),
            Ok(_) => Err((root.clone(), io::ErrorKind::NotADirectory.into())),
            Err(error) => Err((root.clone(), error)),
        };
        Ok(Self {
            home,
            roots: roots.iter().map(canonical).collect::<Result<_, _>>()?,
            texts: embedded::texts(),
            footer: embedded::footer(),
            embedded: [embedded::roles(), embedded::graphs()],
            directories: Directories::default(),
            footers: Footers::default(),
            catalogs: ArcSwap::default(),
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

    /// What applies to a working directory, as the disk is now. No directory: no project scope.
    ///
    /// # Errors
    ///
    /// A bad working directory; see [`walk::project`].
    pub(crate) fn view(&self, cwd: Option<&str>) -> Result<View, RegistryError> {
        let project = cwd.map(|cwd| walk::project(cwd, &self.roots)).transpose()?;
        // Resolved anew for each call: the home, or a link on the way to it, may come into being later.
        let home = self.home.as_deref().and_then(|home| fs::canonicalize(home).ok());

        let mut key = Vec::new();
        let mut levels = Vec::new();
        for directory in directories(project.as_ref(), home.as_deref()) {
            if let Some(level) = self.directories.level(&directory) {
                key.push(directory.path);
                levels.push(level);
            }
        }
        levels.extend(self.embedded.iter().cloned());
        let (footer, notes) = self.footers.find(project.as_ref(), home.as_deref());
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
        catalog
    }
}

/// The directories that apply, in order of precedence. The user scope's is never also the project's.
fn directories(project: Option<&Project>, home: Option<&Path>) -> Vec<TemplateDirectory> {
    let user = home.and_then(|home| {
        let path = fs::canonicalize(home.join(ROLES)).ok()?;
        Some(TemplateDirectory {
            path,
            scope: Scope::User,
            dialect: Dialect::Role,
            wall: home.to_owned(),
        })
    });
    let mut directories = Vec::new();
    if let Some(project) = project {
        let of_project = |path: &Path, dialect| {
            fs::canonicalize(path).ok().map(|path| TemplateDirectory {
                path,
                scope: Scope::Project,
                dialect,
                wall: project.wall.clone(),
            })
        };
        let roles = project
            .directories
            .iter()
            .filter_map(|directory| of_project(&directory.join(ROLES), Dialect::Role));
        let is_user = |directory: &TemplateDirectory| user.as_ref().is_some_and(|user| user.path == directory.path);
        directories.extend(roles.filter(|directory| !is_user(directory)));
        directories.extend(of_project(&project.repository().join(GRAPHS), Dialect::Graph));
    }
    directories.extend(user);
    directories
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
