//! A warm ResolveSpawn against an echo of the same sizes.

use prost::Message as _;
use tonic::codegen::Bytes;
use troupe_proto::registry::v1::{ResolveSpawnRequest, ResolveSpawnResponse};
use troupe_tests::client;

use super::loads::{self, LOADS};
use crate::{
    arrivals::{Rounds, times},
    figure::{Chapter, Figure},
    opaque::{self, Opaque},
    plan::Plan,
    raw,
    samples::typical,
    served::Served,
    site::{DIRECTORIES, Site},
};

/// The method.
const PATH: &str = "/troupe.registry.v1.AgentRegistryService/ResolveSpawn";
/// Number of templates in each directory of a typical project.
const TEMPLATES: usize = 4;

pub(crate) async fn run(plan: Plan) -> Chapter {
    let site = Site::settled(TEMPLATES).await;
    let registry = Served::registry(Some(site.root())).await;
    let request = ResolveSpawnRequest {
        cwd: site.cwd(),
        agent_type: Some("role-0-0".to_owned()),
        ..ResolveSpawnRequest::default()
    };
    let answer = client::registry(registry.address, None)
        .resolve_spawn(request.clone())
        .await;
    let answer = answer.unwrap().into_inner();
    let echo = Served::raw(answer.encoded_len(), None).await;
    let echoes = Opaque {
        address: echo.address,
        path: raw::CALL,
        request: raw::sent(request.encoded_len()),
        connections: plan.connections,
    };
    let resolves = Opaque {
        address: registry.address,
        path: PATH,
        request: Bytes::from(request.encode_to_vec()),
        ..echoes.clone()
    };
    assert_eq!(
        once(&echoes).await.len(),
        answer.encoded_len(),
        "the echo returns its configured response"
    );
    assert_eq!(
        ResolveSpawnResponse::decode(once(&resolves).await),
        Ok(answer.clone()),
        "the measured call succeeds"
    );

    let (mut figures, most) = loads::rates(plan, ("echo", &echoes), &resolves, 0.8).await;
    for load in LOADS {
        let found = Rounds::of(plan, loads::at(load, most), &echoes, &resolves).await;
        let (echoed, resolved) = (times(&found.floor), times(&found.service));
        for (name, part) in [("p50", 0.5), ("p99", 0.99)] {
            figures.push(
                Figure::new(format!("at {load} %, {name}"), typical(&resolved, part), "ms")
                    .against("echo", typical(&echoed, part)),
            );
        }
    }
    Chapter {
        title: "ResolveSpawn",
        how: format!(
            "ResolveSpawn for a project with {TEMPLATES} templates in each of {DIRECTORIES} directories, over {} \
             connections. Latencies come from open loops at 25, 50 and 75 % of the highest rate. Requests have {} \
             bytes, responses {} bytes; the clients do not decode the responses. Medians of {} rounds.",
            plan.connections,
            request.encoded_len(),
            answer.encoded_len(),
            plan.rounds
        ),
        figures,
    }
}

async fn once(calls: &Opaque) -> Bytes {
    let channel = client::endpoint(calls.address).connect_lazy();
    opaque::call(channel, calls.path, calls.request.clone()).await
}
