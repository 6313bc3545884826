//! The registry is asked on every spawn, and what it answered before is sent only once: who has it is told its name. A
//! template that changes is nevertheless that of the very next spawn.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use troupe_proto::{
    registry::v1::{ResolveSpawnRequest, ResolveSpawnResponse},
    supervisor::v1::CreateSessionRequest,
};
use troupe_tests::{
    pair::{OPERATOR, Pair},
    tree::Tree,
    within,
};

const ROLE: &str = "scribe";

fn write(pair: &Pair, description: &str) {
    pair.write_role(ROLE, &format!("---\ndescription: {description}\n---\nWrite.\n"));
}

/// The digest of the template that a spawn got.
async fn spawned(tree: &Tree) -> String {
    let source = tree.spawn(ROLE).await.thread.source;
    source.expect("the role has a template").digest
}

async fn resolve(pair: &Pair, known_etag: &str) -> ResolveSpawnResponse {
    let request = ResolveSpawnRequest {
        cwd: pair.project(),
        agent_type: Some(ROLE.to_owned()),
        known_etag: known_etag.to_owned(),
        ..ResolveSpawnRequest::default()
    };
    let answer = within("a resolution", pair.registry(OPERATOR).resolve_spawn(request)).await;
    answer.unwrap().into_inner()
}

#[tokio::test]
async fn a_template_that_changes_is_that_of_the_next_spawn() {
    let mut pair = Pair::start().await;
    write(&pair, "first");
    let request = CreateSessionRequest {
        cwd: pair.project(),
        ..CreateSessionRequest::default()
    };
    let tree = Tree::open(pair.operator(), request).await;
    let first = spawned(&tree).await;
    assert_eq!(spawned(&tree).await, first);
    write(&pair, "second");
    let second = spawned(&tree).await;
    assert_ne!(second, first);
    // What the supervisor had before is what it gets again; also from a registry that has answered nobody yet.
    write(&pair, "first");
    assert_eq!(spawned(&tree).await, first);
    pair.stop_registry().await;
    pair.start_registry().await;
    assert_eq!(spawned(&tree).await, first);
}

#[tokio::test]
async fn an_answer_that_is_known_is_not_sent_again() {
    let pair = Pair::start().await;
    write(&pair, "first");
    let whole = resolve(&pair, "").await;
    assert_eq!(whole.resolved.as_ref().unwrap().agent_description, "first");
    let known = resolve(&pair, &whole.etag).await;
    assert_eq!((known.resolved, &known.etag), (None, &whole.etag));
    for stale in ["nonsense", &whole.etag.to_uppercase()] {
        assert_eq!(resolve(&pair, stale).await, whole);
    }
    write(&pair, "second");
    let changed = resolve(&pair, &whole.etag).await;
    assert_eq!(changed.resolved.unwrap().agent_description, "second");
    assert_ne!(changed.etag, whole.etag);
}
