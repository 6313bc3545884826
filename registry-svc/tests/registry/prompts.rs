//! Requirements for the embedded prompts, and the custom role of the guide, tested over gRPC.

use tool_policy::{Layer, Policy};
use troupe_proto::{
    common::v1::{
        BlockKind, EdgeManagement, InstructionsMode, MatchMode, Mode, Namespace, ResolvedSpawn, Sandbox, ValueOrigin,
    },
    registry::v1::{Agent, InheritedSettings, ListAgentsRequest, ResolveSpawnRequest},
};

use crate::site::Site;

/// The required sections of a prompt, in their order.
const SECTIONS: &[&str] = &[
    "## Identity",
    "## Responsibilities",
    "## Constraints",
    "## Output style",
];

/// The example role of `docs/add-a-role.md`, verbatim.
const AUDITOR: &str = "\
---
description: Use `auditor` for compliance checks and risk triage.
model: gpt-5-codex
reasoning_effort: medium
read_only: true
agent_names:
  - name: strict
    description: Conservative validation with explicit risk callouts.
    model: gpt-5-codex
    reasoning_effort: high
  - name: fast
    description: Quick scan with concise findings.
    model: gpt-5.3-codex-spark
    reasoning_effort: medium
allow_list:
  - exec_command
  - write_stdin
  - update_plan
  - list_agents
  - list_active_agents
  - wait
  - send_input
  - close_agent
deny_list:
  - apply_patch
---
Use `auditor` for policy and contract checks.
Return findings first, then assumptions.

<!-- agent_name: strict -->
Prioritize completeness and defensive checks.
Reject ambiguous conclusions.

<!-- agent_name: fast -->
Prioritize speed and high-signal output.
Skip low-risk edge cases unless explicitly requested.
";

/// The embedded roles and their personas, with the recommended model and effort.
const RECOMMENDED: &[(&str, &str, &str, &str)] = &[
    ("architect", "", "gpt-5.2", "high"),
    ("bug-hunter", "", "gpt-5.2", "high"),
    ("bug-hunter", "safe", "gpt-5.2", "high"),
    ("bug-hunter", "risky", "gpt-5.2", "medium"),
    ("reviewer", "", "gpt-5.2", "medium"),
    ("reviewer", "strict", "gpt-5.2", "high"),
    ("reviewer", "lenient", "gpt-5.2", "medium"),
    ("explorer", "", "gpt-5.2", "medium"),
    ("explorer", "fast", "gpt-5.2-codex", "medium"),
    ("explorer", "deep", "gpt-5.2", "high"),
    ("worker", "", "gpt-5.2-codex", "medium"),
    ("orchestrator", "", "gpt-5.2-codex", "high"),
    ("orchestrator", "lean", "gpt-5.2-codex", "medium"),
    ("orchestrator", "thorough", "gpt-5.2-codex", "high"),
];

/// Returns the embedded templates of a name space with all fields.
async fn shipped(site: &Site, namespace: Namespace) -> Vec<Agent> {
    let request = ListAgentsRequest {
        namespace: namespace.into(),
        expanded: true,
        ..ListAgentsRequest::default()
    };
    let answer = site.list(request).await.unwrap();
    assert_eq!(answer.next_page_token, "", "one page has all embedded agents");
    answer.agents
}

async fn shipped_role(site: &Site, name: &str) -> Agent {
    let roles = shipped(site, Namespace::AgentType).await;
    roles.into_iter().find(|role| role.agent_type == name).unwrap()
}

/// Returns the text of a block of a resolved spawn.
fn block(resolved: &ResolvedSpawn, kind: BlockKind) -> &str {
    let found = resolved.blocks.iter().find(|block| block.kind() == kind);
    &found.unwrap_or_else(|| panic!("no {kind:?} block")).text
}

/// Returns the policy of the lists in a listing.
fn policy(allow: &[String], deny: &[String]) -> Policy {
    let layer = Layer {
        origin: "role".to_owned(),
        mode: tool_policy::MatchMode::Glob,
        allow: allow.to_vec(),
        deny: deny.to_vec(),
    };
    Policy::compile(vec![layer]).unwrap()
}

/// Asserts that the text contains every phrase, ignoring case and line breaks.
fn assert_says(what: &str, text: &str, phrases: &[&str]) {
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    let text = flat(text);
    for phrase in phrases {
        assert!(text.contains(&flat(phrase)), "{what} does not say {phrase:?}:\n{text}");
    }
}

fn assert_sections(what: &str, prompt: &str) {
    let mut rest = prompt;
    for section in SECTIONS {
        let found = rest.split_once(section);
        let (_, after) =
            found.unwrap_or_else(|| panic!("{what} has no section {section:?}, or has it in the wrong order"));
        let content = after.split("\n## ").next().unwrap_or_default().trim();
        assert!(content.len() > 20, "{what} has too little text under {section:?}");
        rest = after;
    }
}

#[tokio::test]
async fn embedded_prompts_have_required_sections() {
    let site = Site::new().await;
    let roles = shipped(&site, Namespace::AgentType).await;
    let graphs = shipped(&site, Namespace::RoleTemplate).await;
    assert_eq!((roles.len(), graphs.len()), (6, 5));
    for agent in roles.iter().chain(&graphs) {
        assert!(!agent.description.is_empty(), "{}", agent.agent_type);
        assert_sections(&agent.agent_type, agent.default_prompt.as_deref().unwrap());
        for persona in &agent.agent_names {
            // A persona's text replaces the default prompt, so it must be complete.
            let what = format!("{}: {}", agent.agent_type, persona.name);
            assert!(!persona.description.is_empty(), "{what}");
            assert_sections(&what, persona.prompt.as_deref().unwrap());
        }
    }
}

#[tokio::test]
async fn system_block_states_agent_contract() {
    let site = Site::new().await;
    for role in ["worker", "orchestrator", "explorer"] {
        let resolved = site.resolve(site.spawn(role)).await.unwrap();
        let system = block(&resolved, BlockKind::System);
        assert_says(
            "the graph-first workflow",
            system,
            &[
                "graph first",
                "tree of threads, joined by edges",
                "a handoff needs an edge",
            ],
        );
        assert_says(
            "visibility and logging",
            system,
            &[
                "visibility and logging",
                "is recorded",
                "never hide errors",
                "tool usage",
            ],
        );
        assert_says(
            "the limits of the modes",
            system,
            &[
                "PLANNING: the repository is read-only except docs/",
                "IMPLEMENTATION: code and docs may change",
                "ask for the other mode",
            ],
        );
        assert_says(
            "loop safety",
            system,
            &["loop safety", "do not repeat", "report a stall"],
        );
    }
}

#[tokio::test]
async fn footer_ends_system_block_once() {
    let site = Site::new().await;
    let resolved = site.resolve(site.spawn("worker")).await.unwrap();
    let system = block(&resolved, BlockKind::System);
    let order = "`orchestrator` -> `explorer` -> `bug-hunter` -> `reviewer: strict` -> `architect` -> `worker`";
    assert_eq!(system.matches(order).count(), 1, "{system}");
    let (_, footer) = system.split_once("# Sub-agents").unwrap();
    assert_says(
        "the footer",
        footer,
        &[
            order,
            "if `spawn_agent` is unavailable or fails, ignore this section",
            "ask the user before you close",
        ],
    );
    let (before, _) = system.split_once("# Sub-agents").unwrap();
    assert!(
        before.contains("Loop safety"),
        "the system text comes before the footer"
    );
}

#[tokio::test]
async fn mode_block_states_permissions_and_how_to_switch() {
    let site = Site::new().await;
    let of = async |mode: Mode| {
        let request = ResolveSpawnRequest {
            mode: mode.into(),
            ..site.spawn("worker")
        };
        block(&site.resolve(request).await.unwrap(), BlockKind::Mode).to_owned()
    };
    let planning = of(Mode::Planning).await;
    assert_says(
        "PLANNING",
        &planning,
        &[
            "the repository is read-only",
            "except for docs/",
            "do not change code",
            "ask for IMPLEMENTATION mode",
        ],
    );
    let implementation = of(Mode::Implementation).await;
    assert_says(
        "IMPLEMENTATION",
        &implementation,
        &[
            "code edits are allowed",
            "update docs/",
            "run tests",
            "ask for PLANNING mode",
        ],
    );
    assert_eq!(of(Mode::Unspecified).await, implementation);
}

#[tokio::test]
async fn embedded_roles_have_recommended_settings() {
    let site = Site::new().await;
    let roles = shipped(&site, Namespace::AgentType).await;
    let mut found: Vec<(&str, &str, &str, &str)> = Vec::new();
    for role in &roles {
        let own = (role.agent_type.as_str(), "", role.model(), role.reasoning_effort());
        found.push(own);
        for persona in &role.agent_names {
            let (model, effort) = (persona.model(), persona.reasoning_effort());
            found.push((role.agent_type.as_str(), persona.name.as_str(), model, effort));
        }
    }
    found.sort_unstable();
    let mut expected = RECOMMENDED.to_vec();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn worker_and_explorer_may_plan_but_not_spawn() {
    let site = Site::new().await;
    for name in ["worker", "explorer"] {
        let role = shipped_role(&site, name).await;
        assert!(!role.allow_list.is_empty(), "{name} has an allow list");
        let policy = policy(&role.allow_list, &role.deny_list);
        assert!(!policy.allows("spawn_agent"), "{name}");
        for tool in ["update_plan", "list_agents", "list_active_agents"] {
            assert!(policy.allows(tool), "{name}: {tool}");
        }
    }
    let worker = shipped_role(&site, "worker").await;
    assert!(policy(&worker.allow_list, &worker.deny_list).allows("apply_patch"));
}

#[tokio::test]
async fn reading_roles_are_read_only_and_orchestrator_has_no_lists() {
    let site = Site::new().await;
    for (name, read_only) in [
        ("architect", true),
        ("bug-hunter", true),
        ("explorer", true),
        ("reviewer", true),
        ("orchestrator", false),
        ("worker", false),
    ] {
        assert_eq!(shipped_role(&site, name).await.read_only(), read_only, "{name}");
    }
    let orchestrator = shipped_role(&site, "orchestrator").await;
    assert!(orchestrator.allow_list.is_empty() && orchestrator.deny_list.is_empty());
    let resolved = site.resolve(site.spawn("orchestrator")).await.unwrap();
    assert!(resolved.tool_policy.is_none_or(|policy| policy.layers.is_empty()));
}

#[tokio::test]
async fn only_graph_orchestrator_manages_every_edge() {
    let site = Site::new().await;
    for template in shipped(&site, Namespace::RoleTemplate).await {
        let name = &template.agent_type;
        assert!(!template.capabilities.is_empty(), "{name} declares its capabilities");
        assert!(!template.constraints.is_empty(), "{name} declares its constraints");
        assert!(template.version.is_some(), "{name}");
        let request = ResolveSpawnRequest {
            cwd: site.cwd(),
            role_template: Some(name.clone()),
            ..ResolveSpawnRequest::default()
        };
        let resolved = site.resolve(request).await.unwrap();
        let is_orchestrator = name == "orchestrator";
        let declares = resolved
            .capabilities
            .iter()
            .any(|capability| capability == "edge_management_all");
        assert_eq!(declares, is_orchestrator, "{name}");
        let expected = if is_orchestrator {
            EdgeManagement::All
        } else {
            EdgeManagement::None
        };
        assert_eq!(resolved.edge_management(), expected, "{name}");
        assert_eq!(resolved.instructions_mode(), InstructionsMode::Blocks);
        assert_eq!(resolved.instructions, "");
        assert_eq!(
            block(&resolved, BlockKind::Role),
            template.default_prompt.as_deref().unwrap()
        );
    }
}

#[tokio::test]
async fn graph_prompts_state_role_constraints() {
    let site = Site::new().await;
    let templates = shipped(&site, Namespace::RoleTemplate).await;
    let prompt = |name: &str| {
        let template = templates.iter().find(|template| template.agent_type == name).unwrap();
        template.default_prompt.clone().unwrap()
    };
    for (name, phrases) in [
        (
            "orchestrator",
            &[
                "never spawn where approval is required",
                "never hide errors",
                "review the diffs",
            ][..],
        ),
        ("planner", &["write only under docs/", "acceptance criteria"][..]),
        ("implementer", &["diff artifact", "in PLANNING mode change no code"][..]),
        ("reviewer", &["run the verification commands", "change no file"][..]),
        ("investigator", &["no edits", "open what you cite"][..]),
    ] {
        assert_says(name, &prompt(name), phrases);
    }
}

#[test]
fn guide_contains_tested_example() {
    let guide = include_str!("../../../docs/add-a-role.md");
    assert!(guide.contains(AUDITOR), "docs/add-a-role.md has a different example");
}

#[tokio::test]
async fn auditor_resolves_by_default_and_in_each_persona() {
    let site = Site::new().await;
    site.role("auditor", AUDITOR);
    let listing = site.list(site.all()).await.unwrap();
    assert_eq!(listing.diagnostics, []);
    for (persona, model, effort, origin, text) in [
        (
            "",
            "gpt-5-codex",
            "medium",
            ValueOrigin::Role,
            "Use `auditor` for policy and contract checks.\nReturn findings first, then assumptions.",
        ),
        (
            "strict",
            "gpt-5-codex",
            "high",
            ValueOrigin::Persona,
            "Prioritize completeness and defensive checks.\nReject ambiguous conclusions.",
        ),
        (
            " FAST ",
            "gpt-5.3-codex-spark",
            "medium",
            ValueOrigin::Persona,
            "Prioritize speed and high-signal output.\nSkip low-risk edge cases unless explicitly requested.",
        ),
    ] {
        let request = ResolveSpawnRequest {
            agent_name: persona.to_owned(),
            inherited: Some(InheritedSettings {
                model: "the-parents".to_owned(),
                reasoning_effort: "low".to_owned(),
                sandbox: Sandbox::FullAccess.into(),
                ..InheritedSettings::default()
            }),
            ..site.spawn("auditor")
        };
        let resolved = site.resolve(request).await.unwrap();
        assert_eq!(resolved.agent_type, "auditor");
        assert_eq!(resolved.agent_name, persona.trim().to_lowercase());
        assert_eq!(
            (resolved.model.as_str(), resolved.reasoning_effort.as_str()),
            (model, effort),
            "{persona}"
        );
        for field in ["model", "reasoning_effort"] {
            assert_eq!(resolved.get_origins(field), Some(origin), "{persona}: {field}");
        }
        assert_eq!(resolved.instructions, text);
        assert_eq!(resolved.instructions_mode(), InstructionsMode::Replace);
        assert_eq!(block(&resolved, BlockKind::Role), text);
        // read_only forces a read-only sandbox, independent of the parent's sandbox.
        assert_eq!(resolved.sandbox(), Sandbox::ReadOnly, "{persona}");
        assert_eq!(resolved.get_origins("sandbox"), Some(ValueOrigin::Role));
        assert_eq!(resolved.warnings, Vec::<String>::new());
        let layers = resolved.tool_policy.unwrap().layers;
        assert_eq!(layers.len(), 1, "{persona}");
        assert_eq!(
            (layers[0].origin.as_str(), layers[0].r#match()),
            ("role:auditor", MatchMode::Glob)
        );
        let policy = policy(&layers[0].allow_list, &layers[0].deny_list);
        assert!(policy.allows("wait") && !policy.allows("apply_patch"), "{persona}");
    }
}
