//! AuthorizeTool, the check before every tool call of an agent, against an echo of the same sizes.

use prost::Message as _;
use tonic::codegen::Bytes;
use troupe_proto::supervisor::v1::AuthorizeToolRequest;

use crate::{
    arrivals::{Arrivals, Rounds, times},
    figure::{Chapter, Figure},
    opaque::Opaque,
    plan::Plan,
    raw,
    samples::typical,
    served::{Served, Upkeep},
};

/// The method.
const PATH: &str = "/troupe.supervisor.v1.AgentSupervisorService/AuthorizeTool";

pub(crate) async fn run(plan: Plan) -> Chapter {
    let registry = Served::registry(None).await;
    let supervisor = Served::supervisor(registry.address, Upkeep::Usual).await;
    let tree = supervisor.tree().await;
    let request = AuthorizeToolRequest {
        thread_id: tree.spawn("worker").await.id,
        tool: String::from("exec_command"),
        arguments_json: serde_json::json!({ "cmd": "cargo test --workspace" }).to_string(),
        ..AuthorizeToolRequest::default()
    };
    let answer = tree.client().authorize_tool(request.clone()).await;
    let answer = answer.unwrap().into_inner();
    assert!(answer.allowed, "{}", answer.reason);
    let echo = Served::raw(answer.encoded_len(), None).await;
    let echoes = Opaque {
        address: echo.address,
        path: raw::CALL,
        request: raw::sent(request.encoded_len()),
        connections: 1,
    };
    let asks = Opaque {
        address: supervisor.address,
        path: PATH,
        request: Bytes::from(request.encode_to_vec()),
        ..echoes.clone()
    };

    let found = Rounds::of(plan, Arrivals::Callers(1), &echoes, &asks).await;
    let (echoed, asked) = (times(&found.floor), times(&found.service));
    let figures = [("p50", 0.5), ("p99", 0.99)]
        .map(|(name, part)| Figure::new(name, typical(&asked, part), "ms").against("echo", typical(&echoed, part)));
    Chapter {
        title: "AuthorizeTool",
        how: format!(
            "One call at a time; the tool is allowed. Requests have {} bytes, responses {} bytes. Medians of {} \
             rounds of {} calls.",
            request.encoded_len(),
            answer.encoded_len(),
            plan.rounds,
            plan.calls
        ),
        figures: figures.into(),
    }
}
