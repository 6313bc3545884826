//! `troupe console`: the web console, a small HTTP server between a browser and the services.
//!
//! The browser has a cookie, and the server has the operator's token. `origins` checks the origin of a request,
//! `logins` and `proxy` determine the login, and `methods` checks the permissions for a call; these modules are pure,
//! except that `proxy` reads its secrets from a file. `pages` combines them for a request, `api` forwards calls, `feed`
//! merges streams, and `server` limits the connections.

mod api;
mod assets;
mod feed;
mod logins;
mod methods;
mod origins;
mod pages;
mod proxy;
mod server;

use std::{
    future::{Future, pending},
    net::SocketAddr,
    sync::Arc,
};

use serde_json::json;
use svc_kit::{listen, shutdown::Signals};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use troupe_client::host::is_loopback;

use self::{
    api::Api,
    logins::{CODE_LIFETIME, Logins},
    methods::Access,
    origins::{Origins, PublicUrl},
    pages::Console,
    proxy::{Proxy, ProxyArgs},
};
use crate::{
    context::Context,
    error::{Error, Result},
    global::Global,
    pair::init_logging,
    ui::{Fields, Ui},
};

/// The default address.
const DEFAULT_LISTEN: &str = "127.0.0.1:8080";

const AFTER_HELP: &str = "\
Examples:
  troupe console
  troupe console --read-only
  troupe console --listen 127.0.0.1:0 --output json
  troupe console --listen 0.0.0.0:8080 --public-url https://console.example.org
  troupe console --public-url https://console.example.org --proxy-secret-file proxy.token

The command prints a link to log in. The link works once, for 60 seconds. A browser that opens an
expired or used link makes the command print a new one. A login lasts 12 hours.

The console serves plain HTTP on this machine. For other machines, put a proxy with TLS in front
of it and name its URL with --public-url. The proxy has to pass the Host header unchanged. With
--proxy-secret-file, an authenticating proxy logs people in, without a link.";

/// The arguments of `console`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Address of the page; port 0 selects a free port
    #[arg(long, env = "TROUPE_CONSOLE_LISTEN", value_name = "HOST:PORT", default_value = DEFAULT_LISTEN)]
    listen: String,
    /// Only show data; reject all calls that a viewer may not make
    #[arg(long)]
    read_only: bool,
    /// URL of a proxy in front of the console
    #[arg(long, env = "TROUPE_CONSOLE_PUBLIC_URL", value_name = "URL")]
    public_url: Option<PublicUrl>,
    #[command(flatten)]
    proxy: ProxyArgs,
}

/// Serves the console until SIGINT or SIGTERM.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    // Installed first, so that a signal also stops the startup.
    let mut signals = Signals::listen()?;
    let access = if args.read_only {
        Access::Viewer
    } else {
        Access::Operator
    };
    if args.proxy.is_given() {
        init_logging("warn,audit=info")?;
    }
    let proxy = args.proxy.load()?;
    let port = Port::bind(&args.listen, args.public_url).await?;
    let starting = port.connect(access, proxy, context.global.clone());
    let running = tokio::select! {
        running = starting => running?,
        () = signals.next() => return Ok(()),
    };
    running.serve(&context.ui, signals.next()).await
}

/// The bound port of a console.
pub(crate) struct Port {
    listener: TcpListener,
    address: SocketAddr,
    origins: Origins,
}

impl Port {
    /// Binds the port.
    ///
    /// # Errors
    ///
    /// Fails if the address is not usable, or if it is not a loopback address and there is no public URL.
    async fn bind(listen: &str, public_url: Option<PublicUrl>) -> Result<Self> {
        let listener = listen::bind(listen).await.map_err(Error::of)?;
        let address = listener.local_addr()?;
        if public_url.is_none() && !is_loopback(address.ip()) {
            return Err(
                Error::usage(format!("{address} is reachable from other machines in plaintext")).hint(
                    "listen on 127.0.0.1, or put a proxy with TLS in front of it and name its URL with --public-url",
                ),
            );
        }
        Ok(Self {
            listener,
            address,
            origins: Origins::new(address, public_url),
        })
    }

    /// Connects to the supervisor. `access` contains the permissions of logins with a link.
    ///
    /// # Errors
    ///
    /// Fails if the supervisor cannot be reached.
    async fn connect(self, access: Access, proxy: Option<Proxy>, global: Global) -> Result<Running> {
        let server = global.server_name();
        let api = Api::connect(global).await?;
        let logins_end = CancellationToken::new();
        let logins = Logins::new(access, logins_end.clone());
        let console = Console::new(self.origins, self.address.port(), logins, proxy, api, server);
        Ok(Running {
            listener: self.listener,
            console: Arc::new(console),
            logins_end: logins_end.drop_guard(),
        })
    }
}

/// A console that is ready to serve.
struct Running {
    listener: TcpListener,
    console: Arc<Console>,
    /// Dropping this guard ends all logins, which ends all streams.
    logins_end: DropGuard,
}

impl Running {
    /// Serves until `stop` completes. Prints a login link, and another link whenever a person needs one. With a proxy,
    /// prints the URL of the proxy instead.
    async fn serve(self, ui: &Ui, stop: impl Future<Output = ()>) -> Result<()> {
        if !assets::is_built() {
            ui.note("this build has no page; run console/tools/build, then build troupe again");
        }
        let Self {
            listener,
            console,
            logins_end,
        } = self;
        let stop = async move {
            stop.await;
            drop(logins_end);
        };
        let serving = server::serve(listener, Arc::clone(&console), stop);
        let printing = async {
            if let Some(url) = console.proxy_url() {
                ui.answer(
                    || json!({ "link": url }),
                    || Fields::default().field("console", format!("{url} (log in at the proxy)")),
                )?;
                return pending().await;
            }
            loop {
                print_link(ui, &console.new_link()?)?;
                console.link_needed().await;
            }
        };
        tokio::select! {
            () = serving => Ok(()),
            failed = printing => failed,
        }
    }
}

/// The flags of a console that `up` starts.
#[derive(Debug, clap::Args)]
pub(crate) struct UpArgs {
    /// Serve the web console as well, and print its login link
    #[arg(long, conflicts_with = "detach")]
    console: bool,
    /// Address of the web console; port 0 selects a free port
    #[arg(
        long,
        env = "TROUPE_CONSOLE_LISTEN",
        value_name = "HOST:PORT",
        default_value = DEFAULT_LISTEN
    )]
    console_listen: String,
}

impl UpArgs {
    /// Binds the port. Returns `None` if the flags request no console.
    ///
    /// # Errors
    ///
    /// The errors of [`Port::bind`].
    pub(crate) async fn bind(&self) -> Result<Option<Port>> {
        match self.console {
            true => Port::bind(&self.console_listen, None).await.map(Some),
            false => Ok(None),
        }
    }
}

/// Serves the console of a pair until it fails. Waits forever without a port.
pub(crate) async fn serve_for(port: Option<Port>, flags: Global, ui: &Ui) -> Result<()> {
    let Some(port) = port else {
        return pending().await;
    };
    port.connect(Access::Operator, None, flags)
        .await?
        .serve(ui, pending())
        .await
}

fn print_link(ui: &Ui, link: &str) -> Result<()> {
    let seconds = CODE_LIFETIME.as_secs();
    ui.answer(
        || json!({ "link": link, "valid_seconds": seconds }),
        || Fields::default().field("console", format!("{link} (works once, for {seconds} seconds)")),
    )
}
