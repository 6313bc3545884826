//! Automatic routing: the text of a spawn or a session selects its role.

use tonic::{Code, Status};
use troupe_proto::supervisor::v1::{AgentRoute, CreateSessionRequest, SpawnAgentRequest};
use troupe_tests::{pair::Pair, refusal::invalid, tree::Tree, within};

async fn start() -> Pair {
    let pair = Pair::start().await;
    for (name, keys) in [
        ("linter", "keywords: [lint, style]"),
        ("scribe", "keywords: [style, changelog]"),
        ("lead", "spawn_list: [linter, closer]"),
    ] {
        pair.write_role(name, &format!("---\ndescription: d\n{keys}\n---\nWork.\n"));
    }
    pair
}

fn request(tree: &Tree, agent_type: &str, text: &str) -> SpawnAgentRequest {
    SpawnAgentRequest {
        message: Some(text.to_owned()),
        auto_route: true,
        ..tree.request(agent_type)
    }
}

/// Spawns a thread and returns the selected role and the reason. Checks that the thread has that role.
async fn routed(tree: &Tree, request: SpawnAgentRequest) -> Result<(String, String), Status> {
    let answer = tree.try_spawn(request).await?;
    let route: AgentRoute = answer.route.unwrap();
    assert_eq!(answer.thread.unwrap().agent_type, route.agent_type);
    Ok((route.agent_type, route.reason))
}

#[tokio::test]
async fn spawn_is_routed_by_its_text() {
    let pair = start().await;
    let tree = pair.tree().await;
    for (named, text, role, reason) in [
        ("", "Fix what lint reports", "linter", "matched keyword 'lint'"),
        ("", "Say hello", "default", "No confident keyword match."),
        (
            "changelog",
            "Fix what lint reports",
            "scribe",
            "selected explicitly ('changelog')",
        ),
    ] {
        let found = routed(&tree, request(&tree, named, text)).await.unwrap();
        assert_eq!(found, (role.to_owned(), reason.to_owned()), "{text}");
    }
    let plain = tree.spawn("linter").await;
    assert_eq!(plain.thread.agent_type, "linter");
    let scores = tree
        .try_spawn(request(&tree, "", "lint, then the changelog"))
        .await
        .unwrap();
    let scores = scores.route.unwrap().scores;
    assert_eq!(scores.iter().map(|score| score.score).collect::<Vec<_>>(), [1, 1]);
}

#[tokio::test]
async fn unknown_name_fails_although_the_text_matches() {
    let pair = start().await;
    let tree = pair.tree().await;
    let status = routed(&tree, request(&tree, "ghost", "Fix what lint reports"))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    assert_eq!(status.message(), "missing agent template: ghost");
    let both = SpawnAgentRequest {
        role_template: String::from("planner"),
        ..request(&tree, "", "Fix what lint reports")
    };
    invalid(tree.try_spawn(both).await, "give role_template or auto_route, not both");
}

#[tokio::test]
async fn thread_is_routed_within_its_spawn_list() {
    let pair = start().await;
    let tree = pair.tree().await;
    let lead = tree.spawn("lead").await;
    let below = tree.by(pair.with_token(&lead.token));
    // Two agents match the text. One of them is permitted.
    let asked = SpawnAgentRequest {
        parent_thread_id: lead.id.clone(),
        ..request(&below, "", "Check the style")
    };
    let found = routed(&below, asked).await.unwrap();
    assert_eq!(found, (String::from("linter"), String::from("matched keyword 'style'")));
    // The text matches no permitted agent, and `default` is not permitted either.
    let asked = SpawnAgentRequest {
        parent_thread_id: lead.id.clone(),
        ..request(&below, "", "Write the changelog")
    };
    let status = routed(&below, asked).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn root_is_routed_by_its_text() {
    let pair = start().await;
    let create = |request: CreateSessionRequest| {
        let mut client = pair.operator();
        async move { within("a new session", client.create_session(request)).await }
    };
    let request = CreateSessionRequest {
        cwd: pair.project(),
        message: Some(String::from("Fix what lint reports")),
        auto_route: true,
        ..CreateSessionRequest::default()
    };
    let answer = create(request.clone()).await.unwrap().into_inner();
    assert_eq!(answer.route.unwrap().reason, "matched keyword 'lint'");
    let tree = Tree::of(pair.operator(), &answer.session.unwrap());
    let root = tree.thread(&tree.root).await;
    assert_eq!(root.agent_type, "linter");
    let without_text = CreateSessionRequest {
        message: None,
        ..request
    };
    invalid(create(without_text).await, "auto_route needs a message or items");
}
