//! The flags of a supervisor that shares its log with others.

use std::path::PathBuf;

use clap::Args;

/// How the supervisors that share a PostgreSQL database reach each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct ClusterOptions {
    /// Name of this supervisor in its cluster; unique, and the same after a restart [default: the
    /// host and port of --cluster-address]
    #[arg(long, env = "TROUPE_MEMBER_NAME", value_name = "NAME")]
    pub member_name: Option<String>,
    /// URL at which the other supervisors reach this one, such as http://10.0.0.7:50052 [default: the URL of the listen
    /// address]
    #[arg(long, env = "TROUPE_CLUSTER_ADDRESS", value_name = "URL")]
    pub cluster_address: Option<String>,
    /// CA certificates of the other supervisors, PEM [default: the public ones]
    #[arg(long, env = "TROUPE_CLUSTER_CA", value_name = "FILE")]
    pub cluster_ca: Option<PathBuf>,
    /// Name in the certificates of the other supervisors [default: the host of their addresses]
    #[arg(long, env = "TROUPE_CLUSTER_SERVER_NAME", value_name = "NAME")]
    pub cluster_server_name: Option<String>,
}

impl ClusterOptions {
    /// Checks the options. `is_shared` says whether several supervisors can share the log.
    ///
    /// # Errors
    /// A text that names the invalid value, or the flag that does not apply without PostgreSQL.
    pub fn check(&self, is_shared: bool) -> anyhow::Result<()> {
        let given = [
            ("--member-name", self.member_name.is_some()),
            ("--cluster-address", self.cluster_address.is_some()),
            ("--cluster-ca", self.cluster_ca.is_some()),
            ("--cluster-server-name", self.cluster_server_name.is_some()),
        ];
        if let Some((flag, _)) = given.into_iter().find(|(_, is_given)| *is_given && !is_shared) {
            anyhow::bail!("{flag} needs --store with a PostgreSQL URL");
        }
        if let Some(address) = &self.cluster_address {
            let uri: Option<http::Uri> = address.parse().ok();
            let is_url = uri.is_some_and(|uri| {
                matches!(uri.scheme_str(), Some("http" | "https")) && uri.port().is_some() && uri.path() == "/"
            });
            anyhow::ensure!(
                is_url,
                "--cluster-address \"{address}\" is not a URL with a port, such as http://10.0.0.7:50052"
            );
        }
        if let Some(name) = &self.member_name {
            anyhow::ensure!(
                svc_kit::identity::is_name(name),
                "--member-name \"{name}\" is not a valid name: use up to 128 letters, digits and ._-:@/|+=,~"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_flags;

    fn parsed(arguments: &[&str], is_shared: bool) -> Result<ClusterOptions, String> {
        let options: ClusterOptions = parse_flags(arguments).unwrap();
        let checked = options.check(is_shared).map_err(|error| format!("{error:#}"));
        checked.map(|()| options)
    }

    #[test]
    fn address_is_a_url_with_a_port() {
        assert_eq!(parsed(&[], false), Ok(ClusterOptions::default()));
        let flags = [
            "--member-name",
            "troupe-0",
            "--cluster-address",
            "https://10.0.0.7:50052",
        ];
        let options = parsed(&flags, true).unwrap();
        assert_eq!(options.member_name.as_deref(), Some("troupe-0"));
        assert_eq!(options.cluster_address.as_deref(), Some("https://10.0.0.7:50052"));
        for address in ["10.0.0.7:50052", "http://10.0.0.7", "ftp://a:1", "http://a:1/b", ""] {
            let error = parsed(&["--cluster-address", address], true).unwrap_err();
            assert!(error.contains(&format!("\"{address}\"")), "{error}");
        }
        assert!(parsed(&["--member-name", "a b"], true).unwrap_err().contains("\"a b\""));
        assert!(
            parsed(&flags, false)
                .unwrap_err()
                .contains("--member-name needs --store")
        );
    }
}
