//! The registry: knows the cast. It discovers role templates, validates, seeds and lists them, and resolves what a
//! spawn gets.
//!
//! `domain/` decides and is pure; `source/` reads files; `grpc/` translates. [`Registry`] ties them together.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod authority;
pub mod domain;
mod grpc;
mod limits_table;
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
    limits_table::limits,
    options::{CatalogueOptions, OptionsError},
    serve::SERVICES,
    source::{
        bundle::{BundleBounds, Upload},
        gather::{Gathered, gather},
        seed::SeedReport,
    },
};
use crate::{
    domain::{error::RegistryError, models::ModelCatalogue, rules::Rules},
    grpc::{answers::Answers, call::Scans},
    source::{
        Choice, Sources, View,
        bundle::{Bundles, Workspace},
        follow::Bell,
    },
};

/// What a registry serves from.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The directory that has the user scope's `.codex/`. `None`: no user scope.
    pub home: Option<PathBuf>,
    /// Working directories have to lie in one of these. None: every working directory is refused.
    pub workspace_roots: Vec<PathBuf>,
    /// Directories that no template and no footer is read from, whatever links lead there: data directories, whose
    /// tokens would end up in prompts.
    pub hidden: Vec<PathBuf>,
    /// Whether to copy the embedded roles and the footer into the user scope, where they are missing.
    pub seed: bool,
    /// A file with the model catalogue. `None`: every model passes.
    pub models: Option<PathBuf>,
    /// The other programs whose agent files are read, in order of precedence.
    pub import: Vec<ForeignFormat>,
    /// Whether templates and footers of projects are used.
    pub project_templates: ProjectTemplates,
    /// The endpoints that a project's template may choose.
    pub allowed_endpoints: Vec<String>,
    /// Whether RouteAgent routes texts that name no agent.
    pub auto_route: bool,
    /// How much of what clients uploaded is kept.
    pub bundles: BundleBounds,
    /// The number and the times of WatchAgents streams.
    pub watch: WatchBounds,
}

/// Why a registry cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A workspace root is not an existing directory.
    #[error("workspace root {} cannot be used: {error}", .path.display())]
    WorkspaceRoot {
        /// The root.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The model catalogue cannot be read.
    #[error("model catalogue {} cannot be read: {error}", .path.display())]
    Models {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The model catalogue makes no sense.
    #[error("model catalogue {} is invalid: {why}", .path.display())]
    InvalidModels {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// A registry. Cheap to clone; all clones share what was read.
#[derive(Clone, Debug)]
pub struct Registry {
    parts: Arc<Parts>,
}

/// What every call works with.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) sources: Sources,
    pub(crate) models: ModelCatalogue,
    pub(crate) bundles: Bundles,
    pub(crate) answers: Answers,
    pub(crate) auto_route: bool,
    pub(crate) watch: WatchBounds,
    pub(crate) watchers: Arc<Semaphore>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) scans: Scans,
    seeded: SeedReport,
}

impl Parts {
    /// Returns the templates and the footer that apply to a workspace now. Blocks on the disk, until `abandoned` fires.
    pub(crate) fn view(&self, workspace: &Workspace, abandoned: &CancellationToken) -> Result<View, RegistryError> {
        match workspace {
            Workspace::Disk(cwd) => self.sources.view_for(cwd.as_deref(), abandoned),
            Workspace::Bundle(digest) => self.bundles.view(digest, Instant::now()),
        }
    }

    /// The same, if it can be told without the disk. Never blocks.
    pub(crate) fn vouched_view(&self, workspace: &Workspace) -> Option<View> {
        match workspace {
            Workspace::Disk(cwd) => self.sources.vouched(cwd.as_deref()),
            Workspace::Bundle(digest) => self.bundles.view(digest, Instant::now()).ok(),
        }
    }
}

impl Registry {
    /// Opens a registry: checks the roots, reads the model catalogue, seeds the user scope and logs what somebody should
    /// look at there. Blocks on the disk for as long as that takes; call it before serving.
    ///
    /// # Errors
    ///
    /// A root or a model catalogue that cannot be used. Seeding never fails it; see [`Self::seeded`].
    pub fn open(config: Config) -> Result<Self, OpenError> {
        let models = match config.models {
            Some(path) => read_models(path)?,
            None => ModelCatalogue::default(),
        };
        let choice = Choice {
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
                answers: Answers::default(),
                auto_route: config.auto_route,
                watchers: Arc::new(Semaphore::new(config.watch.streams.min(Semaphore::MAX_PERMITS))),
                watch: config.watch,
                bell: Arc::default(),
                scans: Scans::default(),
                seeded,
            }),
        })
    }

    /// What seeding did when the registry was opened.
    #[must_use]
    pub fn seeded(&self) -> &SeedReport {
        &self.parts.seeded
    }

    /// The gRPC service, with its bounds on messages. Its streams live as long as their clients want.
    #[must_use]
    pub fn service(&self) -> RegistryServer {
        self.service_until(CancellationToken::new())
    }

    /// As [`Self::service`]; once `draining` fires, its streams end by themselves.
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
