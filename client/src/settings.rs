//! The addresses of the services, and the credentials of the caller.

use std::{env, ffi::OsString, net::SocketAddr, path::PathBuf};

use tonic::transport::Uri;

use crate::{
    address::Address,
    channel::{Identified, Registry, Supervisor},
    contexts::{Contexts, registry_of},
    data_dir::{Running, default_data_dir},
    error::Error,
    host::{is_loopback, is_this_machine},
    service::Service,
    tls::ClientFiles,
    token::{GivenToken, Token},
};

/// The addresses of the services, and the credentials of the caller. `None` means that a value is not set.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The context that supplies missing values. By default the current context.
    pub context: Option<String>,
    /// URL or `host:port` of the supervisor.
    pub supervisor: Option<String>,
    /// URL or `host:port` of the registry.
    pub registry: Option<String>,
    /// The bearer token.
    pub token: Option<GivenToken>,
    /// A file with the bearer token in its first line.
    pub token_file: Option<PathBuf>,
    /// The TLS files for services with an `https` URL.
    pub tls: ClientFiles,
    /// The data directory of services on this machine.
    pub data_dir: Option<PathBuf>,
}

impl Settings {
    /// Finds the services as the command line does: from variables, the context, and the services that run on the data
    /// directory.
    ///
    /// # Errors
    ///
    /// The context does not exist, or a variable or the file of the contexts is invalid.
    pub fn find() -> Result<Self, Error> {
        Self::from_environment()?.resolve()
    }

    /// Returns the settings in the variables `TROUPE_*`.
    ///
    /// # Errors
    ///
    /// [`Error::HalfIdentity`].
    pub fn from_environment() -> Result<Self, Error> {
        Self::from_variables(|name| env::var_os(name))
    }

    fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, Error> {
        let given = |name: &str| variable(name).filter(|value| !value.is_empty());
        let text = |name: &str| given(name).map(|value| value.to_string_lossy().into_owned());
        let path = |name: &str| given(name).map(PathBuf::from);
        let identity = match (path("TROUPE_CLIENT_CERT"), path("TROUPE_CLIENT_KEY")) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (Some(_), None) | (None, Some(_)) => return Err(Error::HalfIdentity),
        };
        Ok(Self {
            context: text("TROUPE_CONTEXT"),
            supervisor: text("TROUPE_SUPERVISOR_URL"),
            registry: text("TROUPE_REGISTRY_URL"),
            token: text("TROUPE_TOKEN").and_then(|token| token.parse().ok()),
            token_file: path("TROUPE_TOKEN_FILE"),
            tls: ClientFiles {
                authorities: path("TROUPE_CA"),
                identity,
            },
            data_dir: path("TROUPE_DATA_DIR"),
        })
    }

    /// Fills missing values from the selected context.
    ///
    /// Without a context, the services of the data directory are used if they are running. The default registry of a
    /// supervisor on another machine is on the host of the supervisor.
    ///
    /// # Errors
    ///
    /// The context does not exist, or the file of the contexts cannot be read.
    pub fn resolve(self) -> Result<Self, Error> {
        // An address without a named context selects another server, to which the token of the context does not belong.
        // The file is then not read, because a service may lack the permission to read it.
        let is_overridden = self.context.is_none() && (self.supervisor.is_some() || self.registry.is_some());
        let contexts = if is_overridden {
            Contexts::default()
        } else {
            Contexts::load()?
        };
        self.resolve_with(&contexts)
    }

    fn resolve_with(mut self, contexts: &Contexts) -> Result<Self, Error> {
        let name = self.context.as_ref().or(contexts.current.as_ref());
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            let server = contexts.get(name)?.clone();
            self.registry = self.registry.or_else(|| Some(server.registry()));
            self.supervisor = self.supervisor.or(Some(server.supervisor));
            if self.token.is_none() {
                self.token_file = self.token_file.or(server.token_file);
            }
            self.tls.authorities = self.tls.authorities.or(server.ca);
            self.tls.identity = self.tls.identity.or_else(|| server.client_cert.zip(server.client_key));
            return Ok(self);
        }
        match (&self.supervisor, &self.registry) {
            (None, None) => {
                if let Some(running) = self.running() {
                    self.supervisor = Some(format!("http://{}", running.supervisor));
                    self.registry = Some(format!("http://{}", running.registry));
                }
            }
            (Some(supervisor), None) => {
                let registry = registry_of(supervisor);
                let uri = registry.parse::<Uri>().ok();
                let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
                if !host.is_empty() && !is_this_machine(host) {
                    self.registry = Some(registry);
                }
            }
            (_, Some(_)) => {}
        }
        Ok(self)
    }

    /// Returns the services that run on the data directory, if they listen on loopback.
    fn running(&self) -> Option<Running> {
        let data_dir = self.data_dir.clone().or_else(default_data_dir)?;
        let is_local = |address: &str| {
            address
                .parse::<SocketAddr>()
                .is_ok_and(|address| is_loopback(address.ip()))
        };
        Running::find(&data_dir).filter(|running| is_local(&running.supervisor) && is_local(&running.registry))
    }

    /// Returns the address of a service.
    ///
    /// # Errors
    ///
    /// See [`Address::over`].
    pub fn address(&self, service: Service) -> Result<Address, Error> {
        let given = match service {
            Service::Supervisor => &self.supervisor,
            Service::Registry => &self.registry,
        };
        let text = given.clone().unwrap_or_else(|| service.default_url());
        Address::over(service, &text, self.tls.clone())
    }

    /// Returns the token for calls to a service at this host.
    ///
    /// # Errors
    ///
    /// A token file cannot be read, or the token file in the settings has no token.
    pub fn token(&self, host: &str) -> Result<Token, Error> {
        if let Some(text) = self.token.as_ref().and_then(GivenToken::expose) {
            return Ok(Token::given(text));
        }
        if let Some(path) = &self.token_file {
            return Token::in_file(path);
        }
        match &self.data_dir {
            Some(directory) => Token::in_data_dir(directory),
            None if !is_this_machine(host) => Ok(Token::none()),
            // Without a home directory, there is no token file.
            None => default_data_dir().map_or_else(|| Ok(Token::none()), |directory| Token::in_data_dir(&directory)),
        }
    }

    /// Opens a channel to a service.
    ///
    /// # Errors
    ///
    /// Those of [`Self::address`] and [`Self::token`], and [`Error::Unreachable`].
    pub async fn channel(&self, service: Service) -> Result<Identified, Error> {
        let address = self.address(service)?;
        let token = self.token(address.host())?;
        address.channel(&token).await
    }

    /// Connects to the supervisor.
    ///
    /// # Errors
    ///
    /// See [`Self::channel`].
    pub async fn supervisor(&self) -> Result<Supervisor, Error> {
        Ok(self.channel(Service::Supervisor).await?.supervisor())
    }

    /// Connects to the registry.
    ///
    /// # Errors
    ///
    /// See [`Self::channel`].
    pub async fn registry(&self) -> Result<Registry, Error> {
        Ok(self.channel(Service::Registry).await?.registry())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::{contexts::Server, data_dir::OPERATOR_TOKEN, token::Origin};

    fn settings(token: Option<&str>, data_dir: Option<&Path>) -> Settings {
        Settings {
            token: token.map(|text| text.parse().unwrap()),
            data_dir: data_dir.map(Path::to_owned),
            ..Settings::default()
        }
    }

    #[test]
    fn given_token_precedes_files() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(OPERATOR_TOKEN), "from-the-file\n").unwrap();
        let given = settings(Some("from-me"), Some(directory.path()))
            .token("127.0.0.1")
            .unwrap();
        assert_eq!((given.expose(), given.origin()), (Some("from-me"), &Origin::Given));

        let named = directory.path().join("named");
        fs::write(&named, "\n from-the-named-file\nanother\n").unwrap();
        let mut with_file = settings(None, Some(directory.path()));
        with_file.token_file = Some(named.clone());
        let found = with_file.token("10.0.0.7").unwrap();
        assert_eq!(
            (found.expose(), found.origin()),
            (Some("from-the-named-file"), &Origin::File(named))
        );
        with_file.token_file = Some(directory.path().join("none"));
        assert!(matches!(with_file.token("127.0.0.1"), Err(Error::NoToken { .. })));

        let found = settings(None, Some(directory.path())).token("127.0.0.1").unwrap();
        assert_eq!(found.expose(), Some("from-the-file"));
        assert_eq!(found.origin(), &Origin::Found(directory.path().join(OPERATOR_TOKEN)));
        assert!(found.is_found() && !given.is_found());
    }

    #[test]
    fn blank_token_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let none = settings(Some("  "), Some(directory.path())).token("127.0.0.1").unwrap();
        assert_eq!((none.expose(), none.origin()), (None, &Origin::Nowhere));
        fs::write(directory.path().join(OPERATOR_TOKEN), "\n").unwrap();
        let none = settings(None, Some(directory.path())).token("127.0.0.1").unwrap();
        assert_eq!(none.expose(), None);
    }

    #[test]
    fn default_token_file_stays_on_this_machine() {
        let found = settings(None, None).token("troupe.example.com").unwrap();
        assert_eq!(found.origin(), &Origin::Nowhere);
    }

    #[test]
    fn context_supplies_missing_values() {
        let prod = Server {
            supervisor: "https://p:1".to_owned(),
            token_file: Some("/p.token".into()),
            client_cert: Some("/p.pem".into()),
            client_key: Some("/p.key".into()),
            ..Server::default()
        };
        let contexts = Contexts {
            current: Some("prod".to_owned()),
            contexts: [("prod".to_owned(), prod)].into(),
        };
        let current = Settings::default().resolve_with(&contexts).unwrap();
        assert_eq!(current.supervisor.as_deref(), Some("https://p:1"));
        assert_eq!(current.registry.as_deref(), Some("https://p:50051"));
        assert_eq!(current.token_file, Some("/p.token".into()));
        assert_eq!(current.tls.identity, Some(("/p.pem".into(), "/p.key".into())));

        let own = settings(Some("mine"), None).resolve_with(&contexts).unwrap();
        assert_eq!(own.token_file, None);
        let unknown = Settings {
            context: Some("test".to_owned()),
            ..Settings::default()
        };
        assert!(unknown.resolve_with(&contexts).is_err());
    }

    #[test]
    fn remote_registry_is_on_host_of_supervisor() {
        for (supervisor, registry) in [("10.0.0.7:50052", Some("http://10.0.0.7:50051")), ("127.0.0.1:9", None)] {
            let given = Settings {
                supervisor: Some(supervisor.to_owned()),
                ..Settings::default()
            };
            let found = given.resolve_with(&Contexts::default()).unwrap();
            assert_eq!(found.registry.as_deref(), registry);
        }
    }

    #[test]
    fn variables_are_read() {
        let read = |pairs: &[(&str, &str)]| {
            Settings::from_variables(|name| {
                let found = pairs.iter().find(|(given, _)| *given == name);
                found.map(|(_, value)| OsString::from(value))
            })
        };
        let found = read(&[("TROUPE_SUPERVISOR_URL", "host:1"), ("TROUPE_CA", "")]).unwrap();
        assert_eq!(found.supervisor.as_deref(), Some("host:1"));
        assert_eq!(found.tls, ClientFiles::default());
        assert!(matches!(
            read(&[("TROUPE_CLIENT_KEY", "key.pem")]),
            Err(Error::HalfIdentity)
        ));
    }
}
