//! The location of a PostgreSQL database, and the options of connections to it.

use std::{fmt, fs, path::PathBuf, str::FromStr, time::Duration};

use tokio_postgres::{
    Config,
    config::{Host, SslMode, TargetSessionAttrs},
};
use tokio_rustls::rustls::ClientConfig;
use troupe_client::tls::ClientFiles;

use super::error::describe;
use crate::store::error::{InvalidUrl, PostgresError};

/// Default time limit of a connection attempt. The URL can set a different limit.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time after which a connection with unconfirmed sent data counts as lost.
const UNCONFIRMED_TIMEOUT: Duration = Duration::from_secs(20);

/// Idle time after which a connection is probed.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);

/// Time between two probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);

/// Number of unanswered probes after which the connection counts as lost.
const KEEPALIVE_RETRIES: u32 = 3;

/// The parsed URL of a PostgreSQL database.
///
/// The URL has the form that libpq documents. Several hosts are tried in turn until one accepts writes. TLS is on and
/// verifies the server's certificate and name, unless all hosts are Unix sockets or the URL has `sslmode=disable`. The
/// trusted authorities are the public ones, or those in `sslrootcert=FILE`. The values `require` and `verify-full` of
/// `sslmode` mean the same, and values that would accept any certificate are rejected.
#[derive(Clone)]
pub struct PostgresOptions {
    config: Config,
    password_file: Option<PathBuf>,
    /// Whether the server must have a synchronous standby.
    pub(super) requires_standby: bool,
    /// `None`: connections do not use TLS.
    tls: Option<ClientFiles>,
}

impl PostgresOptions {
    /// Takes the password from the first line of a file, which is read for each connection.
    #[must_use]
    pub fn with_password_file(mut self, path: PathBuf) -> Self {
        self.password_file = Some(path);
        self
    }

    /// Rejects a server that has no synchronous standby.
    #[must_use]
    pub fn require_standby(mut self) -> Self {
        self.requires_standby = true;
        self
    }

    /// Reads the files. May block on disk access.
    ///
    /// # Errors
    /// [`PostgresError::File`].
    pub(super) fn load(&self) -> Result<(Config, Option<ClientConfig>), PostgresError> {
        let mut config = self.config.clone();
        if let Some(path) = &self.password_file {
            let text = fs::read_to_string(path).map_err(|cause| PostgresError::File {
                cause: format!("cannot read {}: {cause}", path.display()),
            })?;
            match text.lines().next().filter(|password| !password.is_empty()) {
                Some(password) => config.password(password),
                None => {
                    return Err(PostgresError::File {
                        cause: format!("{} has no password in its first line", path.display()),
                    });
                }
            };
        }
        let tls = self.tls.as_ref().map(ClientFiles::client_config).transpose();
        let tls = tls.map_err(|cause| PostgresError::File {
            cause: cause.to_string(),
        })?;
        Ok((config, tls))
    }

    /// Returns the maximum time until a connection is ready for use, if all hosts but one are down.
    pub(super) fn open_timeout(&self) -> Duration {
        let hosts = self.config.get_hosts().len().max(self.config.get_hostaddrs().len());
        let of_host = self.config.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT);
        of_host.saturating_mul(u32::try_from(hosts).unwrap_or(u32::MAX))
    }
}

impl FromStr for PostgresOptions {
    type Err = InvalidUrl;

    fn from_str(url: &str) -> Result<Self, InvalidUrl> {
        let (url, parameters) = url.split_once('?').unwrap_or((url, ""));
        let mut rest = Vec::new();
        let mut authorities = None;
        let mut is_encrypted = None;
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("sslmode", "disable")) => is_encrypted = Some(false),
                Some(("sslmode", "require" | "verify-full")) => is_encrypted = Some(true),
                Some(("sslmode", other)) => {
                    return Err(InvalidUrl(format!(
                        "sslmode is \"{other}\"; it must be verify-full, require or disable"
                    )));
                }
                Some(("sslrootcert", path)) => authorities = Some(PathBuf::from(path.replace("%2F", "/"))),
                _ => rest.push(parameter),
            }
        }
        let url = format!("{url}?{}", rest.join("&"));
        let mut config = Config::from_str(&url).map_err(|error| InvalidUrl(describe(&error)))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(InvalidUrl(String::from("it has no host")));
        }
        if config.get_user().is_none() {
            return Err(InvalidUrl(String::from("it has no user")));
        }
        let is_local = !config.get_hosts().is_empty() && config.get_hosts().iter().all(is_socket);
        let is_encrypted = is_encrypted.unwrap_or(!is_local);
        if is_local && is_encrypted {
            return Err(InvalidUrl(String::from("a Unix socket has no TLS; leave sslmode out")));
        }
        if authorities.is_some() && !is_encrypted {
            return Err(InvalidUrl(String::from(
                "sslrootcert is given, but the connection does not use TLS",
            )));
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name("troupe");
        }
        config
            .tcp_user_timeout(UNCONFIRMED_TIMEOUT)
            .keepalives_idle(KEEPALIVE_IDLE)
            .keepalives_interval(KEEPALIVE_INTERVAL)
            .keepalives_retries(KEEPALIVE_RETRIES)
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            .ssl_mode(if is_encrypted {
                SslMode::Require
            } else {
                SslMode::Disable
            });
        let tls = is_encrypted.then_some(ClientFiles {
            authorities,
            identity: None,
        });
        Ok(Self {
            config,
            password_file: None,
            requires_standby: false,
            tls,
        })
    }
}

fn is_socket(host: &Host) -> bool {
    matches!(host, Host::Unix(_))
}

/// Shows the hosts and the database, without the user and the password.
impl fmt::Display for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = self.config.get_ports();
        for (index, host) in self.config.get_hosts().iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            let port = ports.get(index).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(name) => write!(f, "{separator}{name}:{port}")?,
                Host::Unix(path) => write!(f, "{separator}{}:{port}", path.display())?,
            }
        }
        write!(f, "/{}", self.config.get_dbname().unwrap_or_default())
    }
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresOptions({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Result<PostgresOptions, String> {
        PostgresOptions::from_str(url).map_err(|error| error.to_string())
    }

    #[test]
    fn tls_is_on_except_on_sockets_and_when_disabled() {
        for (url, is_encrypted) in [
            ("postgres://ann:secret@db.example:6000/troupe", true),
            (
                "postgres://ann@db.example/troupe?sslmode=require&connect_timeout=2",
                true,
            ),
            (
                "postgresql://ann@a,b/troupe?sslmode=verify-full&sslrootcert=/etc/ca.pem",
                true,
            ),
            ("postgres://ann@127.0.0.1/troupe?sslmode=disable", false),
            ("postgres://ann@%2Frun%2Fpostgresql/troupe", false),
        ] {
            let options = parsed(url).unwrap();
            assert_eq!(options.tls.is_some(), is_encrypted, "{url}");
        }
        let options = parsed("postgres://ann@a/troupe?sslrootcert=/etc/ca.pem").unwrap();
        assert_eq!(options.tls.unwrap().authorities, Some(PathBuf::from("/etc/ca.pem")));
    }

    #[test]
    fn invalid_urls_are_rejected_without_the_password() {
        for (url, cause) in [
            ("postgres://ann:secret@host/db?sslmode=prefer", "sslmode is \"prefer\""),
            ("postgres://ann:secret@/db", "no host"),
            ("postgres://host/db", "no user"),
            ("postgres://ann:secret@host/db?colour=red", "colour"),
            ("postgres://ann@%2Frun/db?sslmode=require", "Unix socket"),
            ("postgres://ann@host/db?sslmode=disable&sslrootcert=a", "sslrootcert"),
            ("ann:secret", "invalid"),
        ] {
            let error = parsed(url).unwrap_err();
            assert!(error.contains(cause) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn password_is_not_shown() {
        let options = parsed("postgres://ann:secret@a:1,b:2/troupe").unwrap();
        assert_eq!(
            format!("{options} {options:?}"),
            "a:1,b:2/troupe PostgresOptions(a:1,b:2/troupe)"
        );
    }
}
