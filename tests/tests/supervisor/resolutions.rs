//! Cached resolutions: the registry is asked on every spawn and sends each resolution only once. If the supervisor
//! already has it, the response contains only its name. A changed template still takes effect at the next spawn.

use std::{
    fs,
    time::{Duration, Instant},
};

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
    // The supervisor gets the same resolution again, also from a registry that has not sent it yet.
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

/// Writes this many YAML alias bombs of 400 bytes next to the project's roles.
fn write_bombs(pair: &Pair, count: usize) {
    let mut yaml = format!("a: &a [{}]\n", ["x"; 9].join(","));
    for (level, below) in ('b'..='i').zip('a'..) {
        yaml.push_str(&format!(
            "{level}: &{level} [{}]\n",
            vec![format!("*{below}"); 9].join(",")
        ));
    }
    for number in 0..count {
        pair.write_role(&format!("bomb{number}"), &format!("---\n{yaml}---\nBoom.\n"));
    }
}

#[tokio::test]
async fn valid_role_next_to_alias_bombs_is_spawned() {
    let pair = Pair::start().await;
    write(&pair, "one");
    write_bombs(&pair, 1_990);
    let begun = Instant::now();
    let tree = pair.tree().await;
    tree.spawn(ROLE).await;
    println!("session and spawn next to 1,990 alias bombs: {:?}", begun.elapsed());
    let other = format!("{}/other", pair.project());
    fs::create_dir_all(format!("{other}/.git")).unwrap();
    let mut slowest = Duration::ZERO;
    for number in 0..20 {
        let begun = Instant::now();
        let request = ResolveSpawnRequest {
            cwd: other.clone(),
            ..ResolveSpawnRequest::default()
        };
        // Makes every scan of the first project start over while the other project asks.
        write(&pair, &number.to_string());
        let (mut registry, question) = (pair.registry(OPERATOR), request);
        let (there, here) = tokio::join!(resolve(&pair, ""), async move {
            let answer = registry.resolve_spawn(question).await;
            (answer, begun.elapsed())
        });
        let (here, elapsed) = here;
        slowest = slowest.max(elapsed);
        assert!(there.resolved.is_some());
        here.unwrap();
    }
    println!("slowest resolution elsewhere: {slowest:?}");
}
