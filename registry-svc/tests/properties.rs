//! What holds for every template and every request.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use proptest::prelude::*;
use registry_svc::domain::{
    catalog::{Catalog, Level},
    digest::Digest,
    graph,
    models::ModelCatalogue,
    name::{AgentType, TemplateName},
    prompt::{Mode, SharedTexts},
    resolve::{Inherited, SpawnRequest, Surroundings, Wanted, resolve},
    resolved::Resolved,
    role,
    sandbox::Sandbox,
    template::{Dialect, Scope, TemplateFile},
};

fn catalog(text: &str) -> Catalog {
    let name = AgentType::parse("role").unwrap();
    let file = TemplateFile {
        parsed: role::parse(&name, text),
        name: TemplateName::AgentType(name),
        scope: Scope::Project,
        dialect: Dialect::Role,
        path: "/role.md".to_owned(),
        digest: Some(Digest::of(text.as_bytes())),
    };
    Catalog::build(&[Level {
        files: vec![Arc::new(file)],
        notes: vec![],
    }])
}

fn resolve_role(text: &str, sandbox: Sandbox) -> Option<Resolved> {
    let request = SpawnRequest {
        wanted: Wanted::AgentType(AgentType::parse("role").unwrap()),
        agent_name: None,
        model: None,
        effort: None,
        provider: None,
        inherited: Inherited {
            sandbox: Some(sandbox),
            ..Inherited::default()
        },
        mode: Mode::Implementation,
        expected_digest: None,
    };
    let texts = SharedTexts {
        system: "s".into(),
        planning: "p".into(),
        implementation: "i".into(),
    };
    let around = Surroundings {
        catalog: &catalog(text),
        models: &ModelCatalogue::default(),
        texts: &texts,
        footer: "",
    };
    resolve(&request, around).ok()
}

fn any_sandbox() -> impl Strategy<Value = Sandbox> {
    prop_oneof![
        Just(Sandbox::ReadOnly),
        Just(Sandbox::WorkspaceWrite),
        Just(Sandbox::FullAccess)
    ]
}

/// Frontmatter out of lines that matter and lines that nearly do.
fn any_frontmatter() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        Just("read_only: true".to_owned()),
        Just("read_only: false".to_owned()),
        Just("description: d".to_owned()),
        Just("sandbox: full_access".to_owned()),
        Just("deny_list: [a]".to_owned()),
        "[a-z_]{3,10}: [a-z\\[\\]]{0,4}",
    ];
    proptest::collection::vec(line, 0..5).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn resolving_never_loosens_the_sandbox(yaml in any_frontmatter(), sandbox in any_sandbox()) {
        let text = format!("---\n{yaml}\n---\nprompt");
        if let Some(resolved) = resolve_role(&text, sandbox) {
            prop_assert!(resolved.sandbox.value <= sandbox);
            if yaml.lines().any(|line| line == "read_only: true") {
                prop_assert_eq!(resolved.sandbox.value, Sandbox::ReadOnly);
            }
        }
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in "(---\n)?[ -~\n]{0,200}(\n---\n)?[ -~\n]{0,100}") {
        let _ = role::parse(&AgentType::parse("role").unwrap(), &text);
        let _ = graph::parse(&format!("[template]\n{text}"));
    }

    #[test]
    fn line_ends_change_nothing(text in "(---\n[a-z: \n]{0,60}\n---\n)?[a-z<>!: \n-]{0,100}") {
        let name = AgentType::parse("role").unwrap();
        prop_assert_eq!(role::parse(&name, &text), role::parse(&name, &text.replace('\n', "\r\n")));
    }
}
