//! Locations of the templates and footers of a call. A single walk visits all of them. Code that needs to observe
//! changes passes a [`Lookout`]: [`Places`] for WatchAgents streams, the witness's look for calls.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::{
    domain::{error::RegistryError, family::Family, rules::ProjectTemplates, template::Scope},
    source::{
        Sources, families, footer,
        walk::{self, Project},
    },
};

/// Maximum number of directories that are watched for one follower. Changes beyond that are found by polling.
const MAX_DIRECTORIES: usize = 1_024;

/// An observer that is notified of each location before the sources read it, so that no later change there is missed.
pub(crate) trait Lookout {
    /// Notifies of an absolute path whose target determines a project or the home.
    fn way(&mut self, path: &Path);

    /// Notifies of a check whether a canonical directory has an entry with that name.
    fn name(&mut self, directory: &Path, name: &str);

    /// Notifies of everything in a place below a canonical directory, and of the path to it, since it may be created
    /// later.
    fn place(&mut self, base: &Path, relative: &str);
}

/// A [`Lookout`] that ignores every notification, for a single read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nobody;

impl Lookout for Nobody {
    fn way(&mut self, _: &Path) {}

    fn name(&mut self, _: &Path, _: &str) {}

    fn place(&mut self, _: &Path, _: &str) {}
}

/// The locations whose changes matter to a follower.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// Directories to watch.
    watched: BTreeSet<PathBuf>,
    /// A change of the path itself counts.
    exact: BTreeSet<PathBuf>,
    /// A change of any entry in the directory counts.
    whole: BTreeSet<PathBuf>,
}

impl Places {
    /// Returns the directories to watch.
    #[must_use]
    pub(crate) const fn watched(&self) -> &BTreeSet<PathBuf> {
        &self.watched
    }

    /// Returns whether a change of these paths is relevant. An empty list stands for any path.
    #[must_use]
    pub(crate) fn concern(&self, paths: &[PathBuf]) -> bool {
        let one = |path: &PathBuf| self.exact.contains(path) || self.whole.iter().any(|place| path.starts_with(place));
        paths.is_empty() || paths.iter().any(one)
    }
}

impl Lookout for Places {
    /// Not watched: on some systems that means everything below, and a follower looks again in any case.
    fn way(&mut self, _: &Path) {}

    fn name(&mut self, directory: &Path, name: &str) {
        self.exact.insert(directory.join(name));
    }

    fn place(&mut self, base: &Path, relative: &str) {
        let mut path = base.to_owned();
        let mut rest = Path::new(relative).components();
        // Links are followed, so that each directory has one name here and events name it alike.
        while let Ok(real) = fs::canonicalize(&path)
            && real.is_dir()
        {
            if self.watched.len() < MAX_DIRECTORIES {
                self.watched.insert(real.clone());
            }
            self.exact.insert(real.clone());
            let Some(name) = rest.next() else {
                self.whole.insert(real);
                return;
            };
            path = real.join(name);
            self.exact.insert(path.clone());
        }
    }
}

/// The starting points of the walk.
#[derive(Debug)]
pub(crate) struct Whereabouts {
    /// The project. `None` if the call has no working directory or project templates are off.
    pub(crate) project: Option<Project>,
    /// The home, if it exists. Canonical.
    pub(crate) home: Option<PathBuf>,
}

impl Sources {
    /// Returns the current project and home of a call. `lookout` is notified of every location that determines them and
    /// of every place in them.
    ///
    /// # Errors
    ///
    /// If the working directory is invalid; see [`walk::project`].
    pub(crate) fn whereabouts(
        &self,
        cwd: Option<&str>,
        lookout: &mut impl Lookout,
    ) -> Result<Whereabouts, RegistryError> {
        let project = match cwd {
            Some(cwd) => Some(walk::project(cwd, &self.roots, lookout)?),
            None => None,
        };
        // An invalid working directory is rejected even if project templates are off.
        let project = project.filter(|_| match self.project_templates {
            ProjectTemplates::Trusted => true,
            ProjectTemplates::Off => false,
        });
        if let Some(project) = &project {
            for directory in &project.directories {
                self.tell(directory, Scope::Project, lookout);
            }
            for place in Family::Graph.places(Scope::Project) {
                lookout.place(&project.top, place);
            }
        }
        // Resolved for each call, because the home or a link in its path may be created later.
        let home = self.home.as_deref().and_then(|home| {
            lookout.way(home);
            fs::canonicalize(home).ok()
        });
        if let Some(home) = &home {
            self.tell(home, Scope::User, lookout);
        }
        Ok(Whereabouts { project, home })
    }

    /// Where a change may change what applies to a working directory.
    ///
    /// # Errors
    ///
    /// A bad working directory; see [`walk::project`].
    pub(crate) fn places(&self, cwd: Option<&str>) -> Result<Places, RegistryError> {
        let mut places = Places::default();
        self.whereabouts(cwd, &mut places)?;
        Ok(places)
    }

    fn tell(&self, base: &Path, scope: Scope, lookout: &mut impl Lookout) {
        for place in families(&self.import).iter().flat_map(|family| family.places(scope)) {
            lookout.place(base, place);
        }
        lookout.place(base, footer::DIRECTORY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_not_there_is_waited_for_on_the_way() {
        let guard = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(guard.path()).unwrap();
        fs::create_dir(base.join(".codex")).unwrap();
        let mut places = Places::default();
        places.place(&base, ".codex/.agents");
        assert_eq!(places.watched, BTreeSet::from([base.clone(), base.join(".codex")]));
        for (path, counts) in [
            (".codex", true),
            (".codex/.agents", true),
            (".codex/config.toml", false),
            ("src", false),
            ("src/.codex", false),
        ] {
            assert_eq!(places.concern(&[base.join(path)]), counts, "{path}");
        }
        assert!(places.concern(&[]));

        fs::create_dir(base.join(".codex/.agents")).unwrap();
        let mut places = Places::default();
        places.place(&base, ".codex/.agents");
        assert!(places.concern(&[base.join(".codex/.agents/worker.md")]));
        assert_eq!(places.watched.len(), 3);
    }
}
