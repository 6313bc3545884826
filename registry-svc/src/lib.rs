//! The registry discovers, validates, seeds and lists role templates, and resolves the configuration of a spawn.
//!
//! `domain/` holds the pure rules, `source/` reads files, and `grpc/` converts messages. [`Registry`] combines them.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod authority;
pub mod domain;
mod grpc;
mod limits;
mod options;
pub mod program;
mod serve;
mod source;

use std::{fs, io, path::PathBuf, sync::Arc, time::Instant};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use crate::{
    authority::AUTHORITY,
    domain::{foreign::ForeignFormat, rules::ProjectTemplates},
    grpc::{server::RegistryServer, watch::WatchBounds},
    limits::limits,
    options::{CatalogueOptions, OptionsError},
    serve::SERVICES,
    source::{
        bundle::{BundleBounds, Upload},
        gather::{Gathered, gather},
        seed::SeedReport,
    },
};
use crate::{
    domain::{
        error::RegistryError,
        models::ModelCatalogue,
        name::{AgentType, TemplateName},
        rules::Rules,
    },
    grpc::{call::ScanQueue, response_cache::ResponseCache},
    source::{
        ObservedView, Sources, TemplateOptions, View,
        bundle::{Bundles, Workspace},
        embedded,
    },
};

/// Returns the names of the embedded roles.
#[must_use]
pub fn embedded_roles() -> Vec<AgentType> {
    let names = embedded::roles().files.into_iter().map(|file| file.name.clone());
    names
        .filter_map(|name| match name {
            TemplateName::AgentType(name) => Some(name),
            TemplateName::RoleTemplate(_) => None,
        })
        .collect()
}

/// The configuration of a registry.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The directory that has the user scope's `.codex/`. `None`: no user scope.
    pub home: Option<PathBuf>,
    /// The directories that working directories must lie in. If empty, every working directory is rejected.
    pub workspace_roots: Vec<PathBuf>,
    /// Directories from which no template and no footer is read, even through links. They are data directories, whose
    /// tokens would otherwise appear in prompts.
    pub hidden: Vec<PathBuf>,
    /// Whether to copy missing embedded roles and the footer into the user scope.
    pub seed: bool,
    /// The file of the model catalogue. `None`: every model is accepted.
    pub models: Option<PathBuf>,
    /// The other programs whose agent files are read, in order of precedence.
    pub import: Vec<ForeignFormat>,
    /// Whether templates and footers of projects are used.
    pub project_templates: ProjectTemplates,
    /// The endpoints that a project's template may choose.
    pub allowed_endpoints: Vec<String>,
    /// Whether RouteAgent routes texts that name no agent.
    pub auto_route: bool,
    /// Limits of the cache of uploaded bundles.
    pub bundles: BundleBounds,
    /// Limits of WatchAgents streams.
    pub watch: WatchBounds,
}

/// The reason why a registry cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A workspace root is not an existing directory.
    #[error("workspace root {} cannot be used: {error}", .path.display())]
    WorkspaceRoot {
        /// The root.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The model catalogue cannot be read.
    #[error("model catalogue {} cannot be read: {error}", .path.display())]
    Models {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The model catalogue is invalid.
    #[error("model catalogue {} is invalid: {why}", .path.display())]
    InvalidModels {
        /// The file.
        path: PathBuf,
        /// The problem.
        why: String,
    },
}

/// A registry. Cheap to clone; all clones share the same caches.
#[derive(Clone, Debug)]
pub struct Registry {
    parts: Arc<Parts>,
}

/// The state shared by all calls.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) sources: Sources,
    pub(crate) models: ModelCatalogue,
    pub(crate) bundles: Bundles,
    pub(crate) responses: ResponseCache,
    pub(crate) auto_route: bool,
    pub(crate) watch: WatchBounds,
    pub(crate) watchers: Arc<Semaphore>,
    pub(crate) scans: ScanQueue,
    seeded: SeedReport,
}

impl Parts {
    /// Returns the templates and the footer that apply to a workspace now. Blocks on the disk. Stops at the next file
    /// when `abandoned` fires.
    pub(crate) fn view(&self, workspace: &Workspace, abandoned: &CancellationToken) -> Result<View, RegistryError> {
        match workspace {
            Workspace::Disk(cwd) => self.sources.view_for(cwd.as_deref(), abandoned),
            Workspace::Bundle(digest) => self.bundles.view(digest, Instant::now()),
        }
    }

    /// Returns the same as [`Self::view`], with a handle for changes of the view. A bundle never changes.
    pub(crate) fn observed_view(
        &self,
        workspace: &Workspace,
        abandoned: &CancellationToken,
    ) -> Result<ObservedView, RegistryError> {
        match workspace {
            Workspace::Disk(cwd) => self.sources.observed_view(cwd.as_deref(), abandoned),
            Workspace::Bundle(digest) => Ok(ObservedView {
                view: self.bundles.view(digest, Instant::now())?,
                guarded: None,
            }),
        }
    }

    /// Returns the same as [`Self::view`] if no disk access is needed, otherwise `None`. Never blocks.
    pub(crate) fn cached_view(&self, workspace: &Workspace) -> Option<View> {
        match workspace {
            Workspace::Disk(cwd) => self.sources.cached_view(cwd.as_deref()),
            Workspace::Bundle(digest) => self.bundles.view(digest, Instant::now()).ok(),
        }
    }
}

impl Registry {
    /// Opens a registry: checks the roots, reads the model catalogue, seeds the user scope, and logs files that need an
    /// operator's attention. Blocks on the disk, so call it before serving.
    ///
    /// # Errors
    ///
    /// If a root or the model catalogue cannot be used. A seeding failure is not an error; see [`Self::seeded`].
    pub fn open(config: Config) -> Result<Self, OpenError> {
        let models = match config.models {
            Some(path) => read_models(path)?,
            None => ModelCatalogue::default(),
        };
        let choice = TemplateOptions {
            import: config.import,
            project_templates: config.project_templates,
            rules: Rules::new(&config.allowed_endpoints),
            hidden: config.hidden,
        };
        let sources = Sources::open_with(config.home, &config.workspace_roots, choice)
            .map_err(|(path, error)| OpenError::WorkspaceRoot { path, error })?;
        let seeded = if config.seed {
            sources.seed()
        } else {
            SeedReport::default()
        };
        seeded.log();
        Ok(Self {
            parts: Arc::new(Parts {
                sources,
                models,
                bundles: Bundles::new(config.bundles),
                responses: ResponseCache::default(),
                auto_route: config.auto_route,
                watchers: Arc::new(Semaphore::new(config.watch.streams.min(Semaphore::MAX_PERMITS))),
                watch: config.watch,
                scans: ScanQueue::default(),
                seeded,
            }),
        })
    }

    /// Returns the result of seeding when the registry was opened.
    #[must_use]
    pub fn seeded(&self) -> &SeedReport {
        &self.parts.seeded
    }

    /// Returns the gRPC service with its message size limits. A stream ends when its client disconnects or its lifetime
    /// is over.
    #[must_use]
    pub fn service(&self) -> RegistryServer {
        self.service_until(CancellationToken::new())
    }

    /// Returns the service like [`Self::service`]. Its streams also end when `draining` fires.
    #[must_use]
    pub fn service_until(&self, draining: CancellationToken) -> RegistryServer {
        RegistryServer::new(Arc::clone(&self.parts), draining)
    }
}

fn read_models(path: PathBuf) -> Result<ModelCatalogue, OpenError> {
    match fs::read_to_string(&path).map(|text| ModelCatalogue::parse(&text)) {
        Ok(Ok(models)) => Ok(models),
        Ok(Err(why)) => Err(OpenError::InvalidModels { path, why }),
        Err(error) => Err(OpenError::Models { path, error }),
    }
}
