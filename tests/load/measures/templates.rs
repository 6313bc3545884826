//! ListAgents with many templates: the first call, the next call, and the call after a change.

use std::time::{Duration, Instant};

use registry_svc::Registry;
use svc_kit::{
    auth::{Authenticator, Trust},
    serve::ServeLimits,
    shutdown::Shutdown,
};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;
use troupe_proto::registry::v1::ListAgentsRequest;
use troupe_tests::client;

use crate::{
    figure::{Chapter, Figure},
    plan::Plan,
    samples::{median, millis},
    site::{DIRECTORIES, Site},
};

/// The durations of a round.
struct Round {
    cold: Duration,
    warm: Duration,
    changed: Duration,
}

pub(crate) async fn run(plan: Plan) -> Chapter {
    let site = Site::settled(plan.templates).await;
    let mut rounds = Vec::new();
    for version in 0..plan.rounds {
        rounds.push(measure(&site, version).await);
    }
    let typical = |time: fn(&Round) -> Duration| {
        let times: Vec<Duration> = rounds.iter().map(time).collect();
        millis(median(&times))
    };
    let cold = typical(|round| round.cold);
    Chapter {
        title: "Many templates",
        how: format!(
            "The first page of ListAgents for a project with {} templates in {DIRECTORIES} directories. Each round \
             starts a new registry, in the load program itself. Medians of {} rounds.",
            plan.templates * DIRECTORIES,
            plan.rounds
        ),
        figures: vec![
            Figure::new("cold: open, then list", cold, "ms"),
            Figure::new("warm: nothing changed", typical(|round| round.warm), "ms").against("cold", cold),
            Figure::new("one file changed", typical(|round| round.changed), "ms").against("cold", cold),
        ],
    }
}

/// Measures one round with a new registry in this process.
async fn measure(site: &Site, version: usize) -> Round {
    let opening = Instant::now();
    let registry = Registry::open(registry_svc::Config {
        workspace_roots: vec![site.root().to_owned()],
        ..registry_svc::Config::default()
    })
    .unwrap();
    let opened = opening.elapsed();
    // A first call that reads no project, so that the time of binding and connecting is not measured.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let authenticator = Authenticator::new().trust(Trust::Loopback);
    let serving = registry.serve(listener, authenticator, ServeLimits::default(), Shutdown::new());
    let _serving = AbortOnDropHandle::new(tokio::spawn(async move { serving.await.unwrap() }));
    let mut client = client::registry(address, None);
    client.list_agents(ListAgentsRequest::default()).await.unwrap();

    let request = || ListAgentsRequest {
        cwd: site.cwd(),
        ..ListAgentsRequest::default()
    };
    let start = Instant::now();
    let first = client.list_agents(request()).await.unwrap().into_inner();
    let cold = opened + start.elapsed();

    let start = Instant::now();
    let second = client.list_agents(request()).await.unwrap().into_inner();
    let warm = start.elapsed();
    assert_eq!(first.revision, second.revision, "nothing changed");

    site.change(version);
    let start = Instant::now();
    let third = client.list_agents(request()).await.unwrap().into_inner();
    let changed = start.elapsed();
    assert_ne!(second.revision, third.revision, "the next call returns the change");
    Round { cold, warm, changed }
}
