//! The project and the home that a call reads.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    domain::{error::RegistryError, family::Family, rules::ProjectTemplates, template::Scope},
    source::{
        Sources, families, footer,
        tracker::Scan,
        walk::{self, Project},
    },
};

/// The directories below which a call finds templates and footers.
#[derive(Debug)]
pub(crate) struct SearchRoots {
    /// The project. `None` if the call has no working directory or project templates are off.
    pub(crate) project: Option<Project>,
    /// The home, if it exists. Canonical.
    pub(crate) home: Option<PathBuf>,
}

impl Sources {
    /// Returns the current project and home of a call. `scan` observes every path that determines them, and every
    /// directory in them that may hold templates or footers.
    ///
    /// # Errors
    ///
    /// The working directory is invalid; see [`walk::project`].
    pub(crate) fn search_roots(&self, cwd: Option<&str>, scan: &mut Scan<'_>) -> Result<SearchRoots, RegistryError> {
        let project = match cwd {
            Some(cwd) => Some(walk::project(cwd, &self.roots, Some(scan))?),
            None => None,
        };
        // An invalid working directory is rejected even if project templates are off.
        let project = project.filter(|_| match self.project_templates {
            ProjectTemplates::Trusted => true,
            ProjectTemplates::Off => false,
        });
        if let Some(project) = &project {
            for directory in &project.directories {
                self.observe(directory, Scope::Project, scan);
            }
            for directory in Family::Graph.directories(Scope::Project) {
                scan.observe_directory(&project.top, directory);
            }
        }
        // Resolved for each call, because the home or a link in its path may be created later.
        let home = self.home.as_deref().and_then(|home| {
            scan.observe_path(home);
            fs::canonicalize(home).ok()
        });
        if let Some(home) = &home {
            self.observe(home, Scope::User, scan);
        }
        Ok(SearchRoots { project, home })
    }

    fn observe(&self, base: &Path, scope: Scope, scan: &mut Scan<'_>) {
        for directory in families(&self.import)
            .iter()
            .flat_map(|family| family.directories(scope))
        {
            scan.observe_directory(base, directory);
        }
        scan.observe_directory(base, footer::DIRECTORY);
    }
}
