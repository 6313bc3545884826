//! The registry: knows the cast. It discovers role templates, validates, seeds and lists them, and resolves what a
//! spawn gets.
//!
//! `domain/` decides and is pure; `source/` reads files; `grpc/` translates. [`Registry`] ties them together.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod authority;
pub mod domain;
mod grpc;
mod serve;
mod source;

use std::{fs, io, path::PathBuf, sync::Arc};

use troupe_proto::registry::v1::agent_registry_service_server::AgentRegistryServiceServer;

pub use crate::{authority::AUTHORITY, grpc::service::RegistryService, source::seed::SeedReport};
use crate::{domain::models::ModelCatalogue, source::Sources};

/// What a registry serves from.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The directory that has the user scope's `.codex/`. `None`: no user scope.
    pub home: Option<PathBuf>,
    /// Working directories have to lie in one of these. None: every working directory is refused.
    pub workspace_roots: Vec<PathBuf>,
    /// Whether to copy the embedded roles and the footer into the user scope, where they are missing.
    pub seed: bool,
    /// A file with the model catalogue. `None`: every model passes.
    pub models: Option<PathBuf>,
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
    seeded: SeedReport,
}

impl Registry {
    /// Opens a registry: checks the roots, reads the model catalogue, seeds the user scope. Blocks on the disk for as
    /// long as that takes; call it before serving.
    ///
    /// # Errors
    ///
    /// A root or a model catalogue that cannot be used. Seeding never fails it; see [`Self::seeded`].
    pub fn open(config: Config) -> Result<Self, OpenError> {
        let models = match config.models {
            Some(path) => read_models(path)?,
            None => ModelCatalogue::default(),
        };
        let sources = Sources::open(config.home, &config.workspace_roots)
            .map_err(|(path, error)| OpenError::WorkspaceRoot { path, error })?;
        let seeded = if config.seed {
            sources.seed()
        } else {
            SeedReport::default()
        };
        Ok(Self {
            parts: Arc::new(Parts {
                sources,
                models,
                seeded,
            }),
        })
    }

    /// What seeding did when the registry was opened, for the start message.
    #[must_use]
    pub fn seeded(&self) -> &SeedReport {
        &self.parts.seeded
    }

    /// The gRPC service, with its bounds on messages.
    #[must_use]
    pub fn service(&self) -> AgentRegistryServiceServer<RegistryService> {
        AgentRegistryServiceServer::new(RegistryService::new(Arc::clone(&self.parts)))
            .max_decoding_message_size(troupe_proto::MAX_MESSAGE_BYTES)
            .max_encoding_message_size(troupe_proto::MAX_MESSAGE_BYTES)
    }
}

fn read_models(path: PathBuf) -> Result<ModelCatalogue, OpenError> {
    match fs::read_to_string(&path).map(|text| ModelCatalogue::parse(&text)) {
        Ok(Ok(models)) => Ok(models),
        Ok(Err(why)) => Err(OpenError::InvalidModels { path, why }),
        Err(error) => Err(OpenError::Models { path, error }),
    }
}
