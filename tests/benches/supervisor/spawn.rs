//! A spawn against the least that one can cost: two hops and one durable commit, of the same sizes, in the same run.

use prost::Message as _;
use troupe_proto::{
    registry::v1::ResolveSpawnRequest,
    supervisor::v1::{CreateSessionRequest, event::Kind},
};
use troupe_tests::{
    client::{self, endpoint},
    tree::Tree,
};

use crate::{
    Plan, echo,
    floor::Sizes,
    served::{self, Served},
    versus,
};

const ROLE: &str = "worker";

pub(crate) async fn run(plan: Plan) {
    let registry = served::registry().await;
    let supervisor = Served::supervisor(registry).await;
    let client = client::supervisor(supervisor.address, None);
    let tree = Tree::open(client, CreateSessionRequest::default()).await;

    let question = ResolveSpawnRequest {
        agent_type: Some(ROLE.to_owned()),
        ..ResolveSpawnRequest::default()
    };
    let resolved = client::registry(registry, None).resolve_spawn(question.clone()).await;
    let resolved = resolved.unwrap().into_inner().encoded_len();
    let request = tree.request(ROLE);
    let head = tree.head().await;
    let answer = tree.try_spawn(request.clone()).await.unwrap();
    let event = tree.watch_after(head).await.event().await;
    assert!(matches!(event.kind, Some(Kind::ThreadSpawned(_))));

    let sizes = Sizes {
        question: question.encoded_len(),
        row: event.encoded_len(),
        answer: answer.encoded_len(),
    };
    let echo = echo::Served::start(echo::message(resolved)).await;
    let floor = Served::floor(echo.address, sizes).await;
    let channel = endpoint(floor.address).connect_lazy();
    let asked = echo::sent(request.encoded_len());

    println!("## SpawnAgent against two hops and a commit\n");
    println!(
        "One call at a time, {} a round, medians of {} rounds; {} bytes asked, {} resolved, {} committed, {} \
         answered.\n",
        plan.calls,
        plan.rounds,
        request.encoded_len(),
        resolved,
        sizes.row,
        sizes.answer
    );
    let raw = async || {
        let answered = echo::call(channel.clone(), echo::PATH, asked.clone()).await;
        assert_eq!(answered.len(), sizes.answer);
    };
    let spawn = async || {
        tree.try_spawn(request.clone()).await.unwrap();
    };
    versus::compare(plan, ("two raw hops and a commit", raw), ("SpawnAgent", spawn)).await;
}
