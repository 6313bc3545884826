//! What every command is given.

use std::{env, path::PathBuf};

use svc_kit::paths;

use crate::{
    args::Global,
    client::{self, Registry, Supervisor},
    error::{Error, Result},
    ui::Ui,
};

/// The flags that all commands share, and where to write.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// The flags.
    pub(crate) global: Global,
    /// The terminal.
    pub(crate) ui: Ui,
}

impl Context {
    /// The context of a command line.
    pub(crate) const fn new(global: Global) -> Self {
        let ui = Ui::new(global.output);
        Self { global, ui }
    }

    /// The supervisor that the flags name.
    pub(crate) async fn supervisor(&self) -> Result<Supervisor> {
        client::supervisor(&self.global).await
    }

    /// The registry that the flags name.
    pub(crate) async fn registry(&self) -> Result<Registry> {
        client::registry(&self.global).await
    }

    /// The data directory that the flags name, or the default one.
    pub(crate) fn data_dir(&self) -> Result<PathBuf> {
        match &self.global.data_dir {
            Some(directory) => Ok(directory.clone()),
            None => paths::default_data_dir().map_err(|error| Error::failure(error.to_string())),
        }
    }
}

/// The directory that a command is about: the one given, made absolute, or the current one.
pub(crate) fn directory(given: Option<PathBuf>) -> Result<PathBuf> {
    let here = env::current_dir().map_err(|error| {
        Error::failure(format!("cannot tell the current directory: {error}")).hint("pass --cwd DIR")
    })?;
    // Joining an absolute path replaces the base.
    Ok(given.map_or_else(|| here.clone(), |given| here.join(given)))
}

/// The directory as the wire has it.
pub(crate) fn directory_text(given: Option<PathBuf>) -> Result<String> {
    directory(given)?
        .into_os_string()
        .into_string()
        .map_err(|path| Error::usage(format!("the directory {path:?} is not valid UTF-8")).hint("pass --cwd DIR"))
}
