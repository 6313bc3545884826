//! The A2A port of `troupe up`.

use std::{future::pending, net::SocketAddr, path::PathBuf};

use a2a_svc::{Config, Options, Service, Upstream};
use svc_kit::{listen, secret::SecretToken, serve::ServeLimits, shutdown::Shutdown, web::WebError};
use tokio::{net::TcpListener, task::JoinHandle};
use troupe_client::tls::ClientFiles;

use crate::{
    error::{Error, Result},
    pair::Pair,
};

/// The directory of the push notification configurations in the data directory.
const DIRECTORY: &str = "a2a";

/// The flags of the A2A port.
#[derive(Debug, clap::Args)]
pub(super) struct A2aArgs {
    /// Serve the roles of --a2a-config as A2A agents at this address; port 0 selects a free port
    #[arg(long, env = "TROUPE_A2A_LISTEN", value_name = "HOST:PORT", requires = "a2a_config")]
    a2a: Option<String>,
    /// File with the exported roles and the callers
    #[arg(long, env = "TROUPE_A2A_CONFIG", value_name = "FILE")]
    a2a_config: Option<PathBuf>,
}

/// The bound port.
pub(super) struct Port {
    listener: TcpListener,
    address: SocketAddr,
    config: Config,
}

impl A2aArgs {
    /// Reads the configuration and binds the port. Returns `None` if the flags request no port.
    ///
    /// # Errors
    ///
    /// Fails if the configuration or the address is not usable.
    pub(super) async fn bind(&self, insecure: bool) -> Result<Option<Port>> {
        let (Some(address), Some(config)) = (&self.a2a, &self.a2a_config) else {
            return Ok(None);
        };
        let config = Config::load(config, false).map_err(|error| Error::usage(error.to_string()))?;
        let listener = listen::bind(address).await.map_err(Error::of)?;
        let address = listener.local_addr()?;
        config
            .refuse_open_bind(address, insecure)
            .map_err(|error| Error::usage(error.to_string()))?;
        Ok(Some(Port {
            listener,
            address,
            config,
        }))
    }
}

/// A port that is served.
pub(super) struct Serving {
    pub(super) address: SocketAddr,
    shutdown: Shutdown,
    task: JoinHandle<std::result::Result<(), WebError>>,
}

impl Port {
    /// Serves the roles of a pair.
    ///
    /// # Errors
    ///
    /// Fails if the directory of the push notification configurations is not usable.
    pub(super) fn serve(self, pair: &Pair) -> Result<Serving> {
        let token = pair.token().expose().and_then(SecretToken::parse);
        let upstream = |address| Upstream {
            url: listen::url_of(address),
            token: token.clone().map(Into::into),
            tls: ClientFiles::default(),
        };
        let service = Service::open(Options {
            config: self.config,
            supervisor: upstream(pair.supervisor()),
            registry: upstream(pair.registry()),
            push_directory: pair.data_dir().join(DIRECTORY),
            address: self.address,
            is_https: false,
        })
        .map_err(Error::of)?;
        let shutdown = Shutdown::new();
        let serving = service.serve(self.listener, ServeLimits::default(), shutdown.clone());
        Ok(Serving {
            address: self.address,
            shutdown,
            task: tokio::spawn(serving),
        })
    }
}

/// Waits until the port fails. Waits forever without a port.
pub(super) async fn failed(serving: &mut Option<Serving>) -> Error {
    match serving {
        None => pending().await,
        Some(serving) => match (&mut serving.task).await {
            Ok(Ok(())) => Error::failure("the A2A port stopped unexpectedly"),
            Ok(Err(error)) => Error::of(error),
            Err(error) => Error::failure(format!("the A2A port broke: {error}")),
        },
    }
}

/// Ends the streams and the port.
pub(super) async fn stop(serving: Option<Serving>) {
    if let Some(serving) = serving {
        serving.shutdown.trigger();
        if !serving.task.is_finished() {
            // The port is being stopped, so an error is ignored.
            let _ = serving.task.await;
        }
    }
}
