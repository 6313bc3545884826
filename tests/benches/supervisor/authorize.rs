//! AuthorizeTool, which stands in front of every tool call of an agent, against a raw call of the same size.

use prost::Message as _;
use troupe_proto::supervisor::v1::{AuthorizeToolRequest, CreateSessionRequest};
use troupe_tests::{
    client::{self, endpoint},
    tree::Tree,
};

use crate::{
    Plan, echo,
    served::{self, Served},
    versus,
};

pub(crate) async fn run(plan: Plan) {
    let registry = served::registry().await;
    let supervisor = Served::supervisor(registry).await;
    let client = client::supervisor(supervisor.address, None);
    let tree = Tree::open(client, CreateSessionRequest::default()).await;
    let request = AuthorizeToolRequest {
        thread_id: tree.spawn("worker").await.id,
        tool: String::from("exec_command"),
        arguments_json: serde_json::json!({ "cmd": "cargo test --workspace" }).to_string(),
        ..AuthorizeToolRequest::default()
    };
    let ask = async || {
        let answer = tree
            .client()
            .authorize_tool(request.clone())
            .await
            .unwrap()
            .into_inner();
        assert!(answer.allowed, "{}", answer.reason);
        answer
    };
    let answered = ask().await.encoded_len();
    let echo = echo::Served::start(echo::message(answered)).await;
    let channel = endpoint(echo.address).connect_lazy();
    let asked = echo::sent(request.encoded_len());

    println!("## AuthorizeTool against a raw call\n");
    println!(
        "One call at a time that is allowed, {} a round, medians of {} rounds; {} bytes asked, {answered} answered.\n",
        plan.calls,
        plan.rounds,
        request.encoded_len(),
    );
    let raw = async || {
        echo::call(channel.clone(), echo::PATH, asked.clone()).await;
    };
    let service = async || {
        ask().await;
    };
    versus::compare(plan, ("a raw call", raw), ("AuthorizeTool", service)).await;
}
