//! Named servers in `~/.config/troupe/config.yaml`.
//!
//! A context supplies the connection flags that neither the command line nor the environment sets.

use std::{
    collections::BTreeMap,
    env, fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use svc_kit::{listen::is_this_machine, paths};
use tonic::transport::Uri;

use crate::{
    background::Running,
    error::{Error, Result},
    global::Global,
    suggest,
};

/// The file's name in the configuration directory.
const FILE: &str = "troupe/config.yaml";
/// The default port of the registry.
const REGISTRY_PORT: u16 = 50_051;

/// The connection to one pair of services.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Server {
    /// URL of the supervisor.
    pub(crate) supervisor: String,
    /// URL of the registry. By default, port 50051 of the supervisor's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) registry: Option<String>,
    /// Bearer token file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token_file: Option<PathBuf>,
    /// CA certificates, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<PathBuf>,
    /// Client certificate, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_cert: Option<PathBuf>,
    /// Key of the client certificate, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_key: Option<PathBuf>,
}

impl Server {
    /// Returns the URL of the registry.
    pub(crate) fn registry(&self) -> String {
        self.registry.clone().unwrap_or_else(|| registry_of(&self.supervisor))
    }
}

/// Returns the registry next to a supervisor: port 50051 of the same host.
fn registry_of(supervisor: &str) -> String {
    let url = match supervisor.contains("://") {
        true => supervisor.to_owned(),
        false => format!("http://{supervisor}"),
    };
    match url.parse::<Uri>() {
        Ok(uri) => format!(
            "{}://{}:{REGISTRY_PORT}",
            uri.scheme_str().unwrap_or("http"),
            uri.host().unwrap_or_default()
        ),
        Err(_) => url,
    }
}

/// The contexts of the user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contexts {
    /// The context that applies without `--context`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    /// The servers by the names of their contexts.
    #[serde(default)]
    pub(crate) contexts: BTreeMap<String, Server>,
}

/// Returns the path of the file, or `None` without a home directory.
pub(crate) fn path() -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let directory = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(directory.join(FILE))
}

impl Contexts {
    /// Reads the contexts of the user. A missing file has no contexts.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or is malformed.
    pub(crate) fn load() -> Result<Self> {
        path().map_or_else(|| Ok(Self::default()), |path| Self::read(&path))
    }

    fn read(path: &Path) -> Result<Self> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(Error::failure(format!("cannot read \"{}\": {error}", path.display()))),
        };
        serde_yaml::from_str(&text)
            .map_err(|error| Error::usage(format!("invalid contexts in \"{}\": {error}", path.display())))
    }

    /// Writes the contexts of the user.
    ///
    /// # Errors
    ///
    /// Fails without a home directory, or if the file cannot be written.
    pub(crate) fn save(&self) -> Result<PathBuf> {
        let path = path().ok_or_else(|| {
            Error::failure("cannot find the configuration directory").hint("set HOME or XDG_CONFIG_HOME")
        })?;
        let failed = |error: io::Error| Error::failure(format!("cannot write \"{}\": {error}", path.display()));
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(failed)?;
        }
        let text = serde_yaml::to_string(self).map_err(Error::of)?;
        fs::write(&path, text).map_err(failed)?;
        Ok(path)
    }

    /// Returns the context with this name.
    ///
    /// # Errors
    ///
    /// Suggests the most similar context if the name is unknown.
    pub(crate) fn get(&self, name: &str) -> Result<&Server> {
        self.contexts.get(name).ok_or_else(|| {
            let unknown = Error::not_found(format!("unknown context \"{name}\""));
            match suggest::closest(name, self.contexts.keys().map(String::as_str)) {
                Some(similar) => unknown.hint(format!("did you mean \"{similar}\"?")),
                None => unknown.hint("`troupe context list` lists the contexts"),
            }
        })
    }
}

/// Fills the connection flags that are not given from the context that applies.
///
/// Without a context, the services of the data directory are used if they run, and the registry of a supervisor on
/// another machine is on the same host.
///
/// # Errors
///
/// Fails if the context does not exist, or if the file is malformed.
pub(crate) fn apply(global: &mut Global, is_given: impl Fn(&str) -> bool) -> Result<()> {
    // Given addresses without a named context select another server, so the token of the context is not for it. The
    // file is then not read: a service may not be permitted to.
    let is_overridden = global.context.is_none() && (is_given("supervisor") || is_given("registry"));
    let contexts = if is_overridden {
        Contexts::default()
    } else {
        Contexts::load()?
    };
    let name = global.context.as_ref().or(contexts.current.as_ref());
    if let Some(name) = name.filter(|name| !name.is_empty()) {
        let server = contexts.get(name)?;
        if !is_given("supervisor") {
            global.supervisor.clone_from(&server.supervisor);
        }
        if !is_given("registry") {
            global.registry = server.registry();
        }
        if !is_given("token") && !is_given("token_file") && server.token_file.is_some() {
            global.token_file.clone_from(&server.token_file);
        }
        if !is_given("ca") && server.ca.is_some() {
            global.tls.ca.clone_from(&server.ca);
        }
        if !is_given("client_cert") && !is_given("client_key") && server.client_cert.is_some() {
            global.tls.client_cert.clone_from(&server.client_cert);
            global.tls.client_key.clone_from(&server.client_key);
        }
    } else if !is_given("supervisor") && !is_given("registry") {
        if let Some(running) = running(global) {
            global.supervisor = format!("http://{}", running.supervisor);
            global.registry = format!("http://{}", running.registry);
        }
    } else if !is_given("registry") {
        let registry = registry_of(&global.supervisor);
        let host = registry
            .parse::<Uri>()
            .ok()
            .and_then(|uri| uri.host().map(str::to_owned));
        if host.is_some_and(|host| !host.is_empty() && !is_this_machine(&host)) {
            global.registry = registry;
        }
    }
    Ok(())
}

/// Returns the services that run on the data directory, if they listen on loopback.
fn running(global: &Global) -> Option<Running> {
    let data_dir = global.data_dir.clone().or_else(|| paths::default_data_dir().ok())?;
    let is_loopback = |address: &str| {
        address
            .parse::<SocketAddr>()
            .is_ok_and(|address| address.ip().is_loopback())
    };
    Running::find(&data_dir).filter(|running| is_loopback(&running.supervisor) && is_loopback(&running.registry))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn registry_is_next_to_the_supervisor() {
        assert_eq!(
            registry_of("https://troupe.example.com:50052"),
            "https://troupe.example.com:50051"
        );
        assert_eq!(registry_of("10.0.0.7:50052"), "http://10.0.0.7:50051");
    }

    #[test]
    fn file_is_checked_and_names_are_suggested() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.yaml");
        assert_eq!(Contexts::read(&path).unwrap(), Contexts::default());
        fs::write(&path, "contexts:\n  prod:\n    supervisor: https://p:50052\n").unwrap();
        let contexts = Contexts::read(&path).unwrap();
        assert_eq!(contexts.get("prod").unwrap().registry(), "https://p:50051");
        let unknown = contexts.get("prdo").unwrap_err();
        assert_eq!(unknown.remedy(), Some("did you mean \"prod\"?"));
        fs::write(&path, "contexts:\n  prod:\n    superviser: x\n").unwrap();
        assert_eq!(Contexts::read(&path).unwrap_err().code(), 2);
    }
}
