//! The flags of all programs that contain a registry.

use std::path::PathBuf;

use clap::Args;
use svc_kit::paths::{self, PathsError};

use crate::{Config, ForeignFormat, ProjectTemplates};

/// The flags for templates.
#[derive(Clone, Debug, Default, Args)]
pub struct CatalogueOptions {
    /// Directory that contains `.codex/` of the user scope [default: your home]
    #[arg(long, env = "TROUPE_HOME", value_name = "DIR")]
    pub home: Option<PathBuf>,
    /// Directory that may contain projects (repeatable) [default: the home on loopback; required otherwise]
    #[arg(
        long = "workspace-root",
        env = "TROUPE_WORKSPACE_ROOTS",
        value_delimiter = ':',
        value_name = "DIR"
    )]
    pub workspace_roots: Vec<PathBuf>,
    /// Model catalogue file [default: none; every model is accepted]
    #[arg(long, env = "TROUPE_MODELS", value_name = "FILE")]
    pub models: Option<PathBuf>,
    /// Program whose agents are imported: claude, opencode, copilot, gemini or codex (repeatable; the first takes
    /// precedence)
    #[arg(
        long,
        env = "TROUPE_IMPORT",
        value_delimiter = ',',
        value_name = "PROGRAM",
        value_parser = foreign_format
    )]
    pub import: Vec<ForeignFormat>,
    /// Ignore the templates and footers of projects
    #[arg(long, env = "TROUPE_NO_PROJECT_TEMPLATES")]
    pub no_project_templates: bool,
    /// Endpoint that a project's template may select (repeatable)
    #[arg(
        long = "allowed-endpoint",
        env = "TROUPE_ALLOWED_ENDPOINTS",
        value_delimiter = ',',
        value_name = "URL"
    )]
    pub allowed_endpoints: Vec<String>,
    /// Let RouteAgent route texts that name no agent by agent names and keywords
    #[arg(long, env = "TROUPE_AUTO_ROUTE")]
    pub auto_route: bool,
    /// Do not copy the embedded roles to the user's templates
    #[arg(long)]
    pub no_seed: bool,
}

/// The reason why the flags are invalid. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// The home is unknown.
    #[error(transparent)]
    Home(#[from] PathsError),
    /// Clients on other machines could read the home.
    #[error(
        "a registry that listens off loopback needs the directories that may contain projects: pass --workspace-root DIR \
         for each, or set TROUPE_WORKSPACE_ROOTS"
    )]
    NoRoots,
}

impl CatalogueOptions {
    /// Returns the configuration of a registry. `is_on_loopback`: only this machine can reach the registry.
    ///
    /// # Errors
    ///
    /// The home is unknown, or other machines can reach the registry and no root is configured.
    pub fn config(self, is_on_loopback: bool) -> Result<Config, OptionsError> {
        let home = self.home.map_or_else(paths::default_home, Ok)?;
        let workspace_roots = match (self.workspace_roots.is_empty(), is_on_loopback) {
            (false, _) => self.workspace_roots,
            (true, true) => vec![home.clone()],
            (true, false) => return Err(OptionsError::NoRoots),
        };
        Ok(Config {
            home: Some(home),
            workspace_roots,
            hidden: paths::known_data_dirs(),
            seed: !self.no_seed,
            models: self.models,
            import: self.import,
            project_templates: if self.no_project_templates {
                ProjectTemplates::Off
            } else {
                ProjectTemplates::Trusted
            },
            allowed_endpoints: self.allowed_endpoints,
            auto_route: self.auto_route,
            ..Config::default()
        })
    }
}

fn foreign_format(name: &str) -> Result<ForeignFormat, String> {
    ForeignFormat::parse(name).ok_or_else(|| {
        let known: Vec<_> = ForeignFormat::ALL.iter().map(|format| format.as_str()).collect();
        format!("known programs: {}", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_loopback_roots_must_be_named() {
        let options = CatalogueOptions {
            home: Some(PathBuf::from("/h")),
            ..CatalogueOptions::default()
        };
        let config = options.clone().config(true).unwrap();
        assert_eq!(config.workspace_roots, [PathBuf::from("/h")]);
        assert_eq!(config.hidden, paths::known_data_dirs());
        assert_eq!(config.project_templates, ProjectTemplates::Trusted);
        let refused = options.config(false).unwrap_err().to_string();
        assert!(refused.contains("--workspace-root"), "{refused}");
    }
}
