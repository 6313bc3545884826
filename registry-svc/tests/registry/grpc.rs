//! Tests of the gRPC service on a TCP port, with the generated client.

use tonic::Code;
use troupe_proto::{
    common::v1::{BlockKind, Dialect, InstructionsMode, MatchMode, Mode, Namespace, Sandbox, Scope, ValueOrigin},
    reason::Reason,
    registry::v1::{Agent, InheritedSettings, ListAgentsRequest, ListDiagnosticsRequest, ResolveSpawnRequest},
};

use crate::site::{Site, assert_fault, plain};

const AUDITOR: &str = "---
description: Audits.
model: gpt-role
reasoning_effort: medium
read_only: true
agent_names:
  - {name: strict, description: Thorough., model: gpt-persona}
  - {name: fast, description: Quick., reasoning_effort: low}
allow_list: [wait, exec_command]
deny_list: [apply_patch]
---
Audit.
<!-- agent_name: strict -->
Audit strictly.
<!-- agent_name: fast -->
Audit fast.
";

fn names(agents: &[Agent]) -> Vec<&str> {
    agents.iter().map(|agent| agent.agent_type.as_str()).collect()
}

#[tokio::test]
async fn brief_listing_has_names_descriptions_and_lists() {
    let site = Site::new().await;
    site.role("auditor", AUDITOR);
    let mut agents = site.list(site.only("auditor")).await.unwrap().agents;
    let agent = agents.remove(0);
    assert_eq!(agent.agent_type, "auditor");
    assert_eq!(agent.description, "Audits.");
    assert_eq!(agent.allow_list, ["exec_command", "wait"]);
    assert_eq!(agent.deny_list, ["apply_patch"]);
    let personas: Vec<_> = agent
        .agent_names
        .iter()
        .map(|persona| (persona.name.as_str(), persona.description.as_str()))
        .collect();
    assert_eq!(personas, [("fast", "Quick."), ("strict", "Thorough.")]);
    assert_eq!(
        (agent.model, agent.reasoning_effort, agent.default_prompt, agent.source),
        (None, None, None, None)
    );
    assert_eq!(agent.read_only, None);
    assert_eq!(agent.agent_names[0].prompt, None);
}

#[tokio::test]
async fn expanded_listing_has_all_fields() {
    let site = Site::new().await;
    let path = site.role("auditor", AUDITOR);
    let request = ListAgentsRequest {
        expanded: true,
        ..site.only("auditor")
    };
    let agent = site.list(request).await.unwrap().agents.remove(0);
    assert_eq!(agent.r#match(), MatchMode::Glob);
    assert_eq!(agent.model.as_deref(), Some("gpt-role"));
    assert_eq!(agent.reasoning_effort.as_deref(), Some("medium"));
    assert_eq!(agent.default_prompt.as_deref(), Some("Audit."));
    assert_eq!(agent.read_only, Some(true));
    assert_eq!(agent.agent_names[0].prompt.as_deref(), Some("Audit fast."));
    assert_eq!(agent.agent_names[0].model, None);
    assert_eq!(agent.agent_names[1].model.as_deref(), Some("gpt-persona"));
    let source = agent.source.unwrap();
    assert_eq!((source.scope(), source.dialect()), (Scope::Project, Dialect::Role));
    assert_eq!(source.path, path.display().to_string());
    assert_eq!(source.digest.len(), 64);
}

#[tokio::test]
async fn filters_accept_both_spellings_and_explain_errors() {
    let site = Site::new().await;
    let found = site.list(site.only(" Bug_Hunter ")).await.unwrap();
    assert_eq!(names(&found.agents), ["bug-hunter"]);

    for (filter, code, reason, text) in [
        (
            "",
            Code::InvalidArgument,
            Reason::InvalidAgentType,
            "invalid agent_type \"\"; expected snake_case or kebab-case like \"worker\", \"my_custom_role\", or \
             \"my-custom-role\"",
        ),
        (
            "ghost",
            Code::NotFound,
            Reason::TemplateNotFound,
            "missing agent template: ghost",
        ),
        (
            "default",
            Code::NotFound,
            Reason::TemplateNotFound,
            "missing agent template: default",
        ),
    ] {
        assert_fault(&site.list(site.only(filter)).await.unwrap_err(), code, reason, text);
    }

    site.role("my-own_role", &plain("a"));
    site.role("my_own-role", &plain("b"));
    assert_fault(
        &site.list(site.only("my_own_role")).await.unwrap_err(),
        Code::InvalidArgument,
        Reason::AmbiguousAgentType,
        "ambiguous agent_type \"my_own_role\"; matched multiple templates: my-own_role, my_own-role. Use exact \
         agent_type.",
    );
}

#[tokio::test]
async fn graph_templates_have_their_own_namespace() {
    let site = Site::new().await;
    site.write(
        "repo/docs/templates/Pilot.md",
        "[template]\nversion = \"2\"\n\nYou steer.\n",
    );
    let request = ListAgentsRequest {
        namespace: Namespace::RoleTemplate.into(),
        expanded: true,
        ..site.all()
    };
    let agents = site.list(request).await.unwrap().agents;
    assert_eq!(
        names(&agents),
        [
            "Pilot",
            "implementer",
            "investigator",
            "orchestrator",
            "planner",
            "reviewer"
        ]
    );
    assert_eq!(agents[0].version.as_deref(), Some("2"));
    assert!(agents[3].capabilities.contains(&"edge_management_all".to_owned()));
}

#[tokio::test]
async fn broken_template_is_skipped_in_partial_listing() {
    let site = Site::new().await;
    site.role("broken", "---\nread_only: yes\n---\nx");
    site.role("sound", &plain("x"));
    let text = "invalid agent template \"broken\": invalid YAML: read_only: ";
    for request in [site.all(), site.only("broken")] {
        assert_fault(
            &site.list(request).await.unwrap_err(),
            Code::FailedPrecondition,
            Reason::TemplateInvalid,
            text,
        );
    }
    assert!(site.list(site.only("sound")).await.is_ok());

    let partial = ListAgentsRequest {
        allow_partial: true,
        ..site.all()
    };
    let answer = site.list(partial).await.unwrap();
    assert!(names(&answer.agents).contains(&"sound"));
    assert!(!names(&answer.agents).contains(&"broken"));
    assert_eq!(answer.diagnostics.len(), 1);
    assert_eq!(answer.diagnostics[0].line, 2);
    assert!(answer.diagnostics[0].path.ends_with("broken.md"));

    assert_fault(
        &site.resolve(site.spawn("broken")).await.unwrap_err(),
        Code::FailedPrecondition,
        Reason::TemplateInvalid,
        text,
    );
}

#[tokio::test]
async fn listing_is_paginated() {
    let site = Site::new().await;
    let mut request = ListAgentsRequest {
        page_size: 4,
        ..site.all()
    };
    let first = site.list(request.clone()).await.unwrap();
    assert_eq!(names(&first.agents).len(), 4);
    request.page_token = first.next_page_token;
    let second = site.list(request.clone()).await.unwrap();
    assert_eq!(names(&second.agents), ["reviewer", "worker"]);
    assert_eq!(second.next_page_token, "");

    request.expanded = true;
    let error = site.list(request).await.unwrap_err();
    assert_fault(
        &error,
        Code::InvalidArgument,
        Reason::InvalidArgument,
        "page_token belongs to another request",
    );
    let negative = ListAgentsRequest {
        page_size: -1,
        ..site.all()
    };
    assert_eq!(site.list(negative).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn resolution_follows_precedence_and_returns_origins() {
    let site = Site::new().await;
    site.role("auditor", AUDITOR);
    let mut request = ResolveSpawnRequest {
        agent_name: "Strict".to_owned(),
        inherited: Some(InheritedSettings {
            model: "gpt-parent".to_owned(),
            reasoning_effort: "xhigh".to_owned(),
            provider: "parent".to_owned(),
            sandbox: Sandbox::FullAccess.into(),
            instructions: "ignored".to_owned(),
        }),
        mode: Mode::Planning.into(),
        ..site.spawn("auditor")
    };
    let resolved = site.resolve(request.clone()).await.unwrap();
    assert_eq!(
        (resolved.agent_type.as_str(), resolved.agent_name.as_str()),
        ("auditor", "strict")
    );
    assert_eq!(resolved.agent_description, "Audits.");
    assert_eq!(resolved.instructions, "Audit strictly.");
    assert_eq!(resolved.instructions_mode(), InstructionsMode::Replace);
    assert_eq!(
        (
            resolved.model.as_str(),
            resolved.reasoning_effort.as_str(),
            resolved.provider.as_str()
        ),
        ("gpt-persona", "medium", "parent")
    );
    assert_eq!(resolved.sandbox(), Sandbox::ReadOnly);
    let origin = |field: &str| resolved.origins.get(field).copied();
    assert_eq!(origin("model"), Some(ValueOrigin::Persona.into()));
    assert_eq!(origin("reasoning_effort"), Some(ValueOrigin::Role.into()));
    assert_eq!(origin("provider"), Some(ValueOrigin::Inherited.into()));
    assert_eq!(origin("sandbox"), Some(ValueOrigin::Role.into()));
    let layers = resolved.tool_policy.clone().unwrap().layers;
    assert_eq!(layers.len(), 1);
    assert_eq!(layers[0].origin, "role:auditor");
    assert_eq!(layers[0].allow_list, ["exec_command", "wait"]);
    assert_eq!(layers[0].deny_list, ["apply_patch"]);

    let kinds: Vec<_> = resolved.blocks.iter().map(|block| block.kind()).collect();
    assert_eq!(kinds, [BlockKind::System, BlockKind::Role, BlockKind::Mode]);
    assert!(resolved.blocks[2].text.contains("PLANNING"));
    assert_eq!(resolved.mode_blocks.len(), 2);
    assert_eq!(resolved.mode_blocks[0].block.as_ref(), Some(&resolved.blocks[2]));

    request.model = "mine".to_owned();
    request.reasoning_effort = Some("low".to_owned());
    let explicit = site.resolve(request.clone()).await.unwrap();
    assert_eq!(
        (explicit.model.as_str(), explicit.reasoning_effort.as_str()),
        ("mine", "low")
    );
    assert_ne!(explicit.resolved_digest, resolved.resolved_digest);

    request.model = String::new();
    request.reasoning_effort = None;
    let again = site.resolve(request).await.unwrap();
    assert_eq!(again.resolved_digest, resolved.resolved_digest);
}

#[tokio::test]
async fn default_inherits_parent_instructions() {
    let site = Site::new().await;
    let request = ResolveSpawnRequest {
        agent_type: None,
        inherited: Some(InheritedSettings {
            instructions: "As your parent says.".to_owned(),
            ..InheritedSettings::default()
        }),
        ..site.spawn("")
    };
    let resolved = site.resolve(request).await.unwrap();
    assert_eq!(resolved.agent_type, "default");
    assert_eq!(resolved.instructions, "As your parent says.");
    assert_eq!(resolved.source, None);
    assert_eq!(resolved.sandbox(), Sandbox::WorkspaceWrite);
}

#[tokio::test]
async fn resolve_errors_have_exact_texts() {
    let site = Site::new().await;
    site.role("auditor", AUDITOR);
    site.role(
        "picky",
        "---\nagent_names: [{name: a}, {name: b}]\n---\n<!-- agent_name: a -->\nA\n<!-- agent_name: b -->\nB\n",
    );
    let with = |change: fn(&mut ResolveSpawnRequest)| {
        let mut request = site.spawn("auditor");
        change(&mut request);
        request
    };
    let rows = [
        (
            with(|request| request.agent_name = "p".to_owned()),
            Code::InvalidArgument,
            Reason::InvalidAgentName,
            "unknown agent_name \"p\" for agent_type \"auditor\"",
        ),
        (
            site.spawn("picky"),
            Code::InvalidArgument,
            Reason::InvalidAgentName,
            "agent_type \"picky\" requires agent_name selection",
        ),
        (
            ResolveSpawnRequest {
                agent_name: "p".to_owned(),
                ..site.spawn(" Default ")
            },
            Code::InvalidArgument,
            Reason::InvalidAgentName,
            "agent_name requires a non-default agent_type",
        ),
        (
            with(|request| request.reasoning_effort = Some("extreme".to_owned())),
            Code::InvalidArgument,
            Reason::UnsupportedEffort,
            "reasoning_effort \"extreme\" is not supported for model \"gpt-role\". Supported efforts: none, minimal, \
             low, medium, high, xhigh",
        ),
        (
            with(|request| request.expected_digest = Some("0".repeat(64))),
            Code::FailedPrecondition,
            Reason::DigestMismatch,
            "template \"auditor\" has digest ",
        ),
        (
            with(|request| request.role_template = Some("planner".to_owned())),
            Code::InvalidArgument,
            Reason::InvalidArgument,
            "give agent_type or role_template, not both",
        ),
        (
            with(|request| request.model = "m".repeat(257)),
            Code::InvalidArgument,
            Reason::InvalidArgument,
            "model has 257 bytes; at most 256 are allowed",
        ),
        (
            with(|request| request.workspace_digest = "abc".to_owned()),
            Code::FailedPrecondition,
            Reason::WorkspaceUnknown,
            "workspace \"abc\" is not known here",
        ),
        (
            site.spawn("ghost"),
            Code::NotFound,
            Reason::TemplateNotFound,
            "missing agent template: ghost",
        ),
    ];
    for (request, code, reason, text) in rows {
        assert_fault(&site.resolve(request).await.unwrap_err(), code, reason, text);
    }
}

#[tokio::test]
async fn expected_digest_ignores_letter_case() {
    let site = Site::new().await;
    let digest = site.resolve(site.spawn("worker")).await.unwrap().source.unwrap().digest;
    let request = ResolveSpawnRequest {
        expected_digest: Some(digest.to_uppercase()),
        ..site.spawn("worker")
    };
    assert_eq!(site.resolve(request).await.unwrap().source.unwrap().digest, digest);
}

#[tokio::test]
async fn malformed_file_still_shadows_embedded_role() {
    let site = Site::new().await;
    site.role("worker", "---\ndeny_list: [\n---\nx");
    let error = site.resolve(site.spawn("worker")).await.unwrap_err();
    assert_fault(
        &error,
        Code::FailedPrecondition,
        Reason::TemplateInvalid,
        "invalid agent template \"worker\": invalid YAML: ",
    );
}

#[tokio::test]
async fn working_directories_are_checked() {
    let site = Site::new().await;
    std::fs::create_dir(site.base.join("../outside")).unwrap();
    let long = format!("/{}", "x".repeat(4096));
    let at = |path: &str| site.base.join(path).display().to_string();
    let rows = [
        (
            "relative/path".to_owned(),
            Code::InvalidArgument,
            Reason::InvalidArgument,
            "cwd \"relative/path\" is relative",
        ),
        (
            long,
            Code::InvalidArgument,
            Reason::InvalidArgument,
            "cwd has 4097 bytes",
        ),
        (at("none"), Code::NotFound, Reason::CwdNotFound, "cwd "),
        (
            "/repo/../repo".to_owned(),
            Code::PermissionDenied,
            Reason::CwdOutsideRoots,
            "cwd \"/repo/../repo\" lies outside",
        ),
        (
            at("../outside"),
            Code::PermissionDenied,
            Reason::CwdOutsideRoots,
            "cwd ",
        ),
        (
            "/".to_owned(),
            Code::PermissionDenied,
            Reason::CwdOutsideRoots,
            "cwd \"/\" lies outside",
        ),
    ];
    let list = async |cwd: String| {
        let request = ListAgentsRequest {
            cwd,
            ..ListAgentsRequest::default()
        };
        site.list(request).await.unwrap_err()
    };
    for (cwd, code, reason, text) in rows {
        assert_fault(&list(cwd).await, code, reason, text);
    }
    // The error must not reveal whether the directories before `..` exist.
    for path in ["../outside/../root/repo", "../none/../root/repo", "repo/a/.."] {
        let cwd = at(path);
        let text = format!("cwd \"{cwd}\" goes up by \"..\"; give the path that it leads to");
        assert_fault(&list(cwd).await, Code::InvalidArgument, Reason::InvalidArgument, &text);
    }
}

#[tokio::test]
async fn unreadable_files_are_diagnosed_and_do_not_affect_others() {
    let site = Site::new().await;
    site.role("sound", &plain("x"));
    site.write("../secret.md", &plain("secret"));
    let agents = site.base.join("repo/.codex/.agents");
    std::os::unix::fs::symlink(site.base.join("../secret.md"), agents.join("leak.md")).unwrap();
    std::fs::write(agents.join("binary.md"), b"\xff").unwrap();
    site.role("README", "not a template");
    site.write("repo/.codex/.agents/no name.md", "x");

    let answer = site
        .client()
        .list_diagnostics(ListDiagnosticsRequest {
            cwd: site.cwd(),
            ..ListDiagnosticsRequest::default()
        })
        .await
        .unwrap()
        .into_inner();
    let found: Vec<_> = answer
        .diagnostics
        .iter()
        .map(|each| (each.path.rsplit('/').next().unwrap(), each.message.as_str()))
        .collect();
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(found[0], ("binary.md", "not valid UTF-8 (byte 0)"));
    assert_eq!(found[1].0, "leak.md");
    assert!(found[1].1.starts_with("a link leads outside "), "{}", found[1].1);
    assert_eq!(found[2].0, "no name.md");

    assert!(site.resolve(site.spawn("sound")).await.is_ok());
    let error = site.resolve(site.spawn("leak")).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn seeding_fills_user_scope_once() {
    let site = Site::seeded().await;
    assert_eq!(site.registry.seeded().written.len(), 7);
    assert_eq!(site.registry.seeded().warnings, Vec::<String>::new());
    let source = site.resolve(site.spawn("worker")).await.unwrap().source.unwrap();
    assert_eq!(source.scope(), Scope::User);
    assert_eq!(source.shadowed, ["embedded:agents/worker.md"]);
    assert!(site.base.join("home/.codex/collab/codex_system_footer.md").exists());
}
