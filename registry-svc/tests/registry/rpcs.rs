//! Tests of RouteAgent and DescribeSpawnTool on a TCP port, and of the paths that errors must not reveal.

use std::os::unix::fs::symlink;

use serde_json::Value;
use tonic::{Code, Status};
use troupe_proto::{
    reason::Reason,
    registry::v1::{
        DescribeSpawnToolRequest, DescribeSpawnToolResponse, RouteAgentRequest, RouteAgentResponse, ToolDescription,
    },
};

use crate::site::{Site, assert_fault};

/// Returns a role with these keywords.
fn with_keywords(keywords: &str) -> String {
    format!("---\ndescription: d\nkeywords: [{keywords}]\n---\nx\n")
}

async fn route(site: &Site, text: &str, explicit_agent: &str) -> RouteAgentResponse {
    let request = RouteAgentRequest {
        cwd: site.cwd(),
        text: text.to_owned(),
        explicit_agent: explicit_agent.to_owned(),
        ..RouteAgentRequest::default()
    };
    site.client().route_agent(request).await.unwrap().into_inner()
}

async fn describe(site: &Site, agent_types: &[&str]) -> Result<DescribeSpawnToolResponse, Status> {
    let request = DescribeSpawnToolRequest {
        cwd: site.cwd(),
        agent_types: agent_types.iter().map(|name| (*name).to_owned()).collect(),
        ..DescribeSpawnToolRequest::default()
    };
    let answer = site.client().describe_spawn_tool(request).await?;
    Ok(answer.into_inner())
}

fn schema(tools: &[ToolDescription], name: &str) -> Value {
    let tool = tools.iter().find(|tool| tool.name == name).unwrap();
    serde_json::from_str(&tool.input_schema).unwrap()
}

#[tokio::test]
async fn texts_are_routed_by_names_and_keywords() {
    let site = Site::with(|config| config.auto_route = true).await;
    site.role("typist", &with_keywords("letters, memos"));
    site.role("clerk", &with_keywords("letters"));
    site.role(
        "broken",
        "---\nkeywords: [letters, memos, stamps]\nread_only: yes\n---\nx",
    );
    for (text, explicit, agent_type, reason) in [
        ("type the memos", "", "typist", "matched keyword 'memos'"),
        ("stamps", "", "", "No confident keyword match."),
        (
            "send the bug hunter",
            "",
            "bug-hunter",
            "matched agent name 'bug-hunter'",
        ),
        (
            "anything",
            "Bug_Hunter",
            "bug-hunter",
            "selected explicitly ('Bug_Hunter')",
        ),
        ("x", "broken", "", "Unknown subagent 'broken'."),
    ] {
        let routed = route(&site, text, explicit).await;
        assert_eq!(
            (routed.agent_type.as_str(), routed.reason.as_str()),
            (agent_type, reason),
            "{text}"
        );
    }
    let scores = route(&site, "letters and memos", "").await.scores;
    let shown: Vec<_> = scores
        .iter()
        .map(|score| (score.agent_type.as_str(), score.score, score.keywords.len()))
        .collect();
    assert_eq!(shown, [("typist", 2, 2), ("clerk", 1, 1)]);
}

#[tokio::test]
async fn routing_is_off_by_default() {
    let site = Site::new().await;
    let routed = route(&site, "ask the reviewer", "").await;
    assert_eq!(
        (routed.agent_type.as_str(), routed.reason.as_str()),
        ("", "Auto-routing disabled.")
    );
    assert_eq!(route(&site, "/use reviewer", "").await.agent_type, "reviewer");
    assert_eq!(route(&site, "x", "reviewer").await.agent_type, "reviewer");
}

#[tokio::test]
async fn routed_text_is_bounded() {
    let site = Site::new().await;
    let request = RouteAgentRequest {
        text: "x".repeat(64 * 1024 + 1),
        ..RouteAgentRequest::default()
    };
    assert_fault(
        &site.client().route_agent(request).await.unwrap_err(),
        Code::InvalidArgument,
        Reason::InvalidArgument,
        "text has 65537 bytes; at most 65536 are allowed",
    );
}

#[tokio::test]
async fn tool_descriptions_include_catalogue_roles() {
    let site = Site::new().await;
    site.role(
        "auditor",
        "---\ndescription: Audits.\nagent_names: [{name: strict, description: s}]\n---\nx\n<!-- agent_name: strict \
         -->\ns\n",
    );
    site.role("broken", "---\nread_only: yes\n---\nx");
    let described = describe(&site, &[]).await.unwrap();
    assert!(
        described.hint.starts_with("Available template roles: architect: "),
        "{}",
        described.hint
    );
    assert!(
        described
            .hint
            .contains("; auditor: Audits. [agent_names: strict]; bug-hunter: ")
    );
    assert!(!described.hint.contains("broken"));

    let spawn = schema(&described.tools, "spawn_agent");
    let agent_type = spawn["properties"]["agent_type"]["description"].as_str().unwrap();
    assert!(agent_type.ends_with(&format!("\n{}", described.hint)), "{agent_type}");
    assert!(agent_type.contains("in the project (nearest directory first), then in the user's home"));
    assert_eq!(schema(&described.tools, "wait")["required"], serde_json::json!(["ids"]));
    let node = schema(&described.tools, "spawn_node");
    assert_eq!(node["required"], serde_json::json!(["label", "roleTemplate"]));
    assert!(node["properties"]["instructions"].is_object(), "{node}");
    assert_eq!(describe(&site, &[]).await.unwrap(), described);
}

#[tokio::test]
async fn hint_can_be_limited_to_some_roles() {
    let site = Site::new().await;
    let described = describe(&site, &["Bug_Hunter", "ghost"]).await.unwrap();
    assert!(described.hint.starts_with("Available template roles: bug-hunter: "));
    assert!(!described.hint.contains("worker"), "{}", described.hint);
    let none = describe(&site, &["ghost"]).await.unwrap();
    assert_eq!(none.hint, "");
    assert_eq!(none.tools.len(), 15);
    assert_fault(
        &describe(&site, &["no name"]).await.unwrap_err(),
        Code::InvalidArgument,
        Reason::InvalidAgentType,
        "invalid agent_type \"no name\"",
    );
}

#[tokio::test]
async fn errors_do_not_reveal_paths() {
    let site = Site::new().await;
    let base = site.base.display().to_string();
    site.write("../secret.md", "secret text");
    let secret = site.base.join("../secret.md");
    site.write("home/.codex/.agents/own.md", "---\nread_only: yes\n---\nown text");
    for directory in ["home/.codex/.agents", "repo/.codex/.agents"] {
        std::fs::create_dir_all(site.base.join(directory)).unwrap();
        let name = if directory.starts_with("home") {
            "mine"
        } else {
            "theirs"
        };
        symlink(&secret, site.base.join(directory).join(format!("{name}.md"))).unwrap();
    }
    for agent_type in ["mine", "theirs", "own"] {
        let error = site.resolve(site.spawn(agent_type)).await.unwrap_err();
        assert_eq!(error.code(), Code::FailedPrecondition, "{agent_type}");
        let details = String::from_utf8_lossy(error.details()).into_owned();
        for told in [error.message(), details.as_str()] {
            assert!(!told.contains(&base), "{told}");
            assert!(!told.contains("secret"), "{told}");
            assert!(!told.contains("own text"), "{told}");
        }
    }
    // The error about a rejected directory contains only the path from the request.
    let mut outside = site.spawn("worker");
    outside.cwd = "/".to_owned();
    let error = site.resolve(outside).await.unwrap_err();
    assert_eq!(error.code(), Code::PermissionDenied);
    assert!(!error.message().contains(&base), "{}", error.message());
}
