//! `troupe pods`: keeps pods for single threads or sessions in a Kubernetes cluster.

use std::path::PathBuf;

use http::Uri;
use svc_kit::shutdown::Signals;
use tokio_util::sync::CancellationToken;
use troupe_runner::pods::{self, PodsConfig};

use crate::{
    error::{Error, Result},
    pair,
};

const AFTER_HELP: &str = "\
It runs in the cluster, with an account that may list, create and delete pods in its namespace, or for a template of a
SandboxClaim list pods and list, create and delete claims. The chart starts it:
  troupe pods --template /etc/troupe/pod.json --owner troupe-runner --idle 2 --max 100";

/// The arguments of `pods`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Manifest in JSON of a pod whose container `runner` runs `troupe run --one-thread` or `--one-session`, or of a
    /// SandboxClaim for such a pod
    #[arg(long, value_name = "FILE")]
    template: PathBuf,
    /// Deployment that owns the pods: Kubernetes deletes the pods with it
    #[arg(long, value_name = "NAME")]
    owner: String,
    /// Number of pods that wait for a thread
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    idle: usize,
    /// Maximum number of pods, at most 1000
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    max: usize,
    /// URL of the API server
    #[arg(long, value_name = "URL", default_value = "https://kubernetes.default.svc")]
    kubernetes: Uri,
    /// Directory with the account's token, ca.crt and namespace
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount"
    )]
    account: PathBuf,
}

/// Keeps pods until SIGINT or SIGTERM.
pub(crate) async fn run(args: Args) -> Result<()> {
    pair::init_logging("info")?;
    let mut signals = Signals::listen()?;
    let config = PodsConfig {
        template: args.template,
        owner: args.owner,
        idle: args.idle,
        max: args.max,
        server: args.kubernetes,
        account: args.account,
    };
    let stop = CancellationToken::new();
    let kept = pods::keep(config, stop.clone());
    tokio::pin!(kept);
    let kept = tokio::select! {
        kept = &mut kept => kept,
        () = signals.next() => {
            stop.cancel();
            kept.await
        }
    };
    kept.map_err(|error| Error::of(error).context("cannot keep pods for threads"))
}
