//! Resolution of a valid role next to malicious ones.

use std::{
    fs,
    time::{Duration, Instant},
};

use troupe_proto::registry::v1::{ResolveSpawnRequest, ResolveSpawnResponse};
use troupe_tests::{
    pair::{OPERATOR, Pair},
    within,
};

const ROLE: &str = "scribe";

fn write(pair: &Pair, description: &str) {
    pair.write_role(ROLE, &format!("---\ndescription: {description}\n---\nWrite.\n"));
}

async fn resolve(pair: &Pair) -> ResolveSpawnResponse {
    let request = ResolveSpawnRequest {
        cwd: pair.project(),
        agent_type: Some(ROLE.to_owned()),
        ..ResolveSpawnRequest::default()
    };
    let answer = within("a resolution", pair.registry(OPERATOR).resolve_spawn(request)).await;
    answer.unwrap().into_inner()
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
        let (there, here) = tokio::join!(resolve(&pair), async move {
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
