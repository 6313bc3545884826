//! A warm ResolveSpawn against an echo of the same sizes, in the same run.

use prost::{Message as _, bytes::Bytes};
use tonic::transport::Channel;
use troupe_proto::registry::v1::{
    ResolveSpawnRequest, ResolveSpawnResponse, agent_registry_service_client::AgentRegistryServiceClient,
};

use crate::{
    Plan, echo,
    load::{self, Run},
    site::{Served, Site, connect},
    table::{self, median, millis, quantile},
};

/// The method.
const PATH: &str = "/troupe.registry.v1.AgentRegistryService/ResolveSpawn";
/// Templates in each directory of a project as people have them.
const TEMPLATES: usize = 4;

pub(crate) async fn run(plan: Plan) {
    let site = Site::settled(TEMPLATES).await;
    let registry = Served::start(site.registry()).await;
    let request = ResolveSpawnRequest {
        cwd: site.cwd(),
        agent_type: Some("role-0-0".to_owned()),
        ..ResolveSpawnRequest::default()
    };
    let mut client = AgentRegistryServiceClient::new(connect(registry.address).await);
    let answer = client.resolve_spawn(request.clone()).await.unwrap().into_inner();
    let sizes = (request.encoded_len(), answer.encoded_len());
    let echo_request = echo::sent(sizes.0);
    let echo = echo::Served::start(echo::message(sizes.1)).await;
    let answered = echo::call(connect(echo.address).await, echo::PATH, echo_request.clone()).await;
    assert_eq!(answered.len(), sizes.1, "the echo answers what it was told to");
    let opaque_request = Bytes::from(request.encode_to_vec());
    let answered = echo::call(connect(registry.address).await, PATH, opaque_request.clone()).await;
    assert_eq!(ResolveSpawnResponse::decode(answered), Ok(answer));

    let (mut echoed, mut resolved, mut decoded) = (Vec::new(), Vec::new(), Vec::new());
    // In turns, so that whatever slows the machine down slows both.
    for _ in 0..plan.rounds {
        let opaque = |path: &'static str, message: &Bytes| {
            let message = message.clone();
            move |channel: Channel| {
                let message = message.clone();
                async move {
                    echo::call(channel, path, message).await;
                }
            }
        };
        echoed.push(load::run(plan, echo.address, opaque(echo::PATH, &echo_request)).await);
        resolved.push(load::run(plan, registry.address, opaque(PATH, &opaque_request)).await);
        let request = request.clone();
        let call = move |channel: Channel| {
            let request = request.clone();
            async move {
                let mut client = AgentRegistryServiceClient::new(channel);
                client.resolve_spawn(request).await.unwrap();
            }
        };
        decoded.push(load::run(plan, registry.address, call).await);
    }

    println!("## ResolveSpawn against an echo\n");
    println!(
        "{} connections, one call at a time on each, {} calls a round, medians of {} rounds; {} bytes there, {} back.\n",
        plan.connections,
        plan.connections * plan.calls,
        plan.rounds,
        sizes.0,
        sizes.1
    );
    let of_echo = |runs: &[Run]| rate(runs) / rate(&echoed);
    table::print(
        ["service", "calls/s", "p50, ms", "p99, ms", "of the echo"],
        &[
            row("echo (tonic alone)", &echoed, 1.0),
            row("ResolveSpawn, warm", &resolved, of_echo(&resolved)),
            row(
                "ResolveSpawn, warm, and the client reads the answer",
                &decoded,
                of_echo(&decoded),
            ),
        ],
    );
}

fn rate(runs: &[Run]) -> f64 {
    median(&runs.iter().map(|run| run.rate).collect::<Vec<_>>())
}

fn row(what: &str, runs: &[Run], ratio: f64) -> [String; 5] {
    let at = |part| {
        let each: Vec<_> = runs.iter().map(|run| quantile(&run.latencies, part)).collect();
        millis(median(&each))
    };
    [
        what.to_owned(),
        format!("{:.0}", rate(runs)),
        at(0.5),
        at(0.99),
        format!("{ratio:.2}"),
    ]
}
