//! Named servers in `~/.config/troupe/config.yaml`.

use std::{
    collections::BTreeMap,
    env, fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tonic::transport::Uri;

use crate::{data_dir::absolute, error::Error, service::Service};

/// The file's name in the configuration directory.
const FILE: &str = "troupe/config.yaml";

/// The connection to one pair of services.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// URL of the supervisor.
    pub supervisor: String,
    /// URL of the registry. By default, port 50051 of the supervisor's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry: Option<String>,
    /// Bearer token file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// CA certificates, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Client certificate, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cert: Option<PathBuf>,
    /// Key of the client certificate, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_key: Option<PathBuf>,
}

impl Server {
    /// Returns the URL of the registry.
    #[must_use]
    pub fn registry(&self) -> String {
        self.registry.clone().unwrap_or_else(|| registry_of(&self.supervisor))
    }
}

/// Returns the default registry of a supervisor: port 50051 of the same host.
pub(crate) fn registry_of(supervisor: &str) -> String {
    let url = match supervisor.contains("://") {
        true => supervisor.to_owned(),
        false => format!("http://{supervisor}"),
    };
    match url.parse::<Uri>() {
        Ok(uri) => format!(
            "{}://{}:{}",
            uri.scheme_str().unwrap_or("http"),
            uri.host().unwrap_or_default(),
            Service::Registry.port()
        ),
        Err(_) => url,
    }
}

/// The contexts of the user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    /// The context that is used without `--context`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// The servers by the names of their contexts.
    #[serde(default)]
    pub contexts: BTreeMap<String, Server>,
}

/// Returns the path of the file, or `None` without a home directory.
#[must_use]
pub fn path() -> Option<PathBuf> {
    let directory = |name: &str| absolute(env::var_os(name).as_deref());
    let directory = directory("XDG_CONFIG_HOME").or_else(|| Some(directory("HOME")?.join(".config")))?;
    Some(directory.join(FILE))
}

impl Contexts {
    /// Reads the contexts of the user. A missing file has no contexts.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or is malformed.
    pub fn load() -> Result<Self, Error> {
        path().map_or_else(|| Ok(Self::default()), |path| Self::read(&path))
    }

    fn read(path: &Path) -> Result<Self, Error> {
        let path = path.to_owned();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(cause) => return Err(Error::UnreadableContexts { path, cause }),
        };
        serde_yaml::from_str(&text).map_err(|error| Error::InvalidContexts {
            path,
            cause: error.to_string(),
        })
    }

    /// Writes the contexts of the user and returns the path of the file.
    ///
    /// # Errors
    ///
    /// Fails without a home directory, or if the file cannot be written.
    pub fn save(&self) -> Result<PathBuf, Error> {
        let path = path().ok_or(Error::NoConfigDir)?;
        match self.write(&path) {
            Ok(()) => Ok(path),
            Err(cause) => Err(Error::UnwritableContexts { path, cause }),
        }
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(path, serde_yaml::to_string(self).map_err(io::Error::other)?)
    }

    /// Returns the context with this name.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownContext`].
    pub fn get(&self, name: &str) -> Result<&Server, Error> {
        self.contexts.get(name).ok_or_else(|| Error::UnknownContext {
            name: name.to_owned(),
            known: self.contexts.keys().cloned().collect(),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn registry_is_on_host_of_supervisor() {
        assert_eq!(
            registry_of("https://troupe.example.com:50052"),
            "https://troupe.example.com:50051"
        );
        assert_eq!(registry_of("10.0.0.7:50052"), "http://10.0.0.7:50051");
    }

    #[test]
    fn file_is_checked() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.yaml");
        assert_eq!(Contexts::read(&path).unwrap(), Contexts::default());
        fs::write(&path, "contexts:\n  prod:\n    supervisor: https://p:50052\n").unwrap();
        let contexts = Contexts::read(&path).unwrap();
        assert_eq!(contexts.get("prod").unwrap().registry(), "https://p:50051");
        assert!(matches!(
            contexts.get("prdo"),
            Err(Error::UnknownContext { known, .. }) if known == ["prod"]
        ));
        fs::write(&path, "contexts:\n  prod:\n    superviser: x\n").unwrap();
        let error = Contexts::read(&path).unwrap_err();
        assert!(error.to_string().contains("superviser"), "{error}");
    }
}
