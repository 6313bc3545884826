//! `troupe console`: the web console, a small HTTP server between a browser and the services.
//!
//! The browser has a cookie, the server has the operator's token. `origins` decides who may send requests, `logins` who
//! is logged in, and `methods` what may be called; the three are pure. `pages` combines them for a request, `api`
//! forwards calls, `feed` merges streams, and `server` bounds the connections.

mod api;
mod assets;
mod feed;
mod logins;
mod methods;
mod origins;
mod pages;
mod server;

use std::sync::Arc;

use serde_json::json;
use svc_kit::{
    listen::{self, is_loopback},
    shutdown::Signals,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::{
    api::Api,
    logins::{CODE_LIFETIME, Logins},
    methods::Access,
    origins::{Origins, PublicUrl},
    pages::Console,
};
use crate::{
    context::Context,
    error::{Error, Result},
    global::Global,
    ui::{Fields, Ui},
};

/// The address of a console that `up` starts.
pub(crate) const DEFAULT_LISTEN: &str = "127.0.0.1:8080";

const AFTER_HELP: &str = "\
Examples:
  troupe console
  troupe console --read-only
  troupe console --listen 127.0.0.1:0 --output json
  troupe console --listen 0.0.0.0:8080 --public-url https://console.example.org

The command prints a link to log in. The link is valid for 60 seconds and works once. A browser that opens an expired or
used link makes the command print a new one. A login lasts 12 hours. Ctrl-C ends the console and all logins.

The console itself serves plain HTTP. To reach it from other machines, put a proxy with TLS in front of it that passes the
Host header, and name its URL with --public-url.";

/// The arguments of `console`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Address of the page; port 0 selects a free port
    #[arg(long, env = "TROUPE_CONSOLE_LISTEN", value_name = "HOST:PORT", default_value = DEFAULT_LISTEN)]
    listen: String,
    /// Only show; reject everything that a viewer may not do
    #[arg(long)]
    read_only: bool,
    /// URL of a proxy in front of the console
    #[arg(long, env = "TROUPE_CONSOLE_PUBLIC_URL", value_name = "URL")]
    public_url: Option<PublicUrl>,
}

/// Serves the console until SIGINT or SIGTERM.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    // Installed first, so that a signal during startup stops it as well.
    let mut signals = Signals::listen()?;
    let access = if args.read_only {
        Access::Viewer
    } else {
        Access::Operator
    };
    let starting = Running::start(&args.listen, args.public_url, access, context.global.clone());
    let running = tokio::select! {
        running = starting => running?,
        () = signals.next() => return Ok(()),
    };
    let stopped = CancellationToken::new();
    let serving = running.serve(&context.ui, stopped.clone());
    let stop = async {
        signals.next().await;
        stopped.cancel();
    };
    tokio::join!(serving, stop).0
}

/// A console whose port is bound.
pub(crate) struct Running {
    listener: TcpListener,
    console: Arc<Console>,
    /// Ends all logins.
    logins_end: CancellationToken,
}

impl Running {
    /// Binds the port and connects to the supervisor.
    ///
    /// # Errors
    ///
    /// The address is not usable, or the supervisor cannot be reached.
    async fn start(listen: &str, public_url: Option<PublicUrl>, access: Access, global: Global) -> Result<Self> {
        let listener = listen::bind(listen).await.map_err(Error::of)?;
        let address = listener.local_addr()?;
        if public_url.is_none() && !is_loopback(address.ip()) {
            return Err(Error::usage(format!("{address} is reachable from other machines in plaintext")).hint(
                "listen on 127.0.0.1, or put a proxy with TLS in front and name its URL with --public-url https://...",
            ));
        }
        let server = global.server_name();
        let api = Api::connect(global, access).await?;
        let logins_end = CancellationToken::new();
        let logins = Logins::new(logins_end.clone());
        let origins = Origins::new(address, public_url);
        Ok(Self {
            listener,
            console: Arc::new(Console::new(origins, address.port(), logins, api, server)),
            logins_end,
        })
    }

    /// Prints a link, and another one whenever it is needed. Serves until `stopped` is cancelled.
    async fn serve(self, ui: &Ui, stopped: CancellationToken) -> Result<()> {
        if !assets::is_built() {
            ui.note("this build has no page; `cd console && npm ci && npm run build`, then build troupe again");
        }
        let Self {
            listener,
            console,
            logins_end,
        } = self;
        let serving = server::serve(listener, Arc::clone(&console), async {
            stopped.cancelled().await;
            logins_end.cancel();
        });
        let printing = async {
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

fn print_link(ui: &Ui, link: &str) -> Result<()> {
    let seconds = CODE_LIFETIME.as_secs();
    ui.answer(
        || json!({ "link": link, "valid_seconds": seconds }),
        || Fields::default().field("log in", format!("{link} (works once, for {seconds} seconds)")),
    )
}
