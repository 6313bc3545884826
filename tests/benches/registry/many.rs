//! Many templates: what the first call costs, the next one, and the one after a change.

use std::time::{Duration, Instant};

use tonic::{
    codegen::{Body, Bytes, StdError},
    service::Routes,
};
use troupe_proto::registry::v1::{ListAgentsRequest, agent_registry_service_client::AgentRegistryServiceClient};

use crate::{
    Plan,
    site::{DIRECTORIES, Served, Site, connect},
    table::{self, median, millis, percent},
};

/// What the rounds took.
#[derive(Default)]
struct Times {
    cold: Vec<Duration>,
    warm: Vec<Duration>,
    changed: Vec<Duration>,
}

pub(crate) async fn run(plan: Plan) {
    let site = Site::settled(plan.templates).await;
    let (mut inside, mut outside) = (Times::default(), Times::default());
    for round in 0..plan.rounds {
        let start = Instant::now();
        let registry = site.registry();
        // The service without a connection in between.
        let routes = Routes::new(registry.service());
        let client = AgentRegistryServiceClient::new(routes);
        inside.measure(client, start, &site, 2 * round).await;

        let start = Instant::now();
        let registry = site.registry();
        let opened = start.elapsed();
        let served = Served::start(registry).await;
        let client = AgentRegistryServiceClient::new(connect(served.address).await);
        // Binding and connecting are not the registry's.
        let start = Instant::now().checked_sub(opened).unwrap();
        outside.measure(client, start, &site, 2 * round + 1).await;
    }

    println!("## {} templates in one project\n", plan.templates * DIRECTORIES);
    println!("ListAgents, the first page; medians of {} rounds.\n", plan.rounds);
    let (cold_inside, cold_outside) = (median(&inside.cold), median(&outside.cold));
    let row = |what: &str, inside: Duration, outside: Duration| {
        [
            what.to_owned(),
            millis(inside),
            percent(inside, cold_inside),
            millis(outside),
            percent(outside, cold_outside),
        ]
    };
    table::print(
        ["call", "in the process, ms", "of cold", "over gRPC, ms", "of cold"],
        &[
            row("cold: open, then list", cold_inside, cold_outside),
            row("warm: nothing changed", median(&inside.warm), median(&outside.warm)),
            row("one file changed", median(&inside.changed), median(&outside.changed)),
        ],
    );
}

impl Times {
    /// One round with a registry that has read nothing; `start` is when it was begun to be opened.
    async fn measure<T>(
        &mut self,
        mut client: AgentRegistryServiceClient<T>,
        start: Instant,
        site: &Site,
        version: usize,
    ) where
        T: tonic::client::GrpcService<tonic::body::Body>,
        T::Error: Into<StdError>,
        T::ResponseBody: Body<Data = Bytes> + Send + 'static,
        <T::ResponseBody as Body>::Error: Into<StdError> + Send,
    {
        let request = || ListAgentsRequest {
            cwd: site.cwd(),
            ..ListAgentsRequest::default()
        };
        let first = client.list_agents(request()).await.unwrap().into_inner();
        self.cold.push(start.elapsed());

        let start = Instant::now();
        let second = client.list_agents(request()).await.unwrap().into_inner();
        self.warm.push(start.elapsed());
        assert_eq!(first.revision, second.revision, "nothing changed");

        site.change(version);
        let start = Instant::now();
        let third = client.list_agents(request()).await.unwrap().into_inner();
        self.changed.push(start.elapsed());
        assert_ne!(
            second.revision, third.revision,
            "the change is served by the very next call"
        );
    }
}
