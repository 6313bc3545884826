//! Cost of resolving a spawn in a registry whose files are parsed, and cost of reading a file.
//!
//! ```text
//! cargo bench -p registry-svc --bench resolve
//! ```
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::{hint::black_box, sync::Arc};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use registry_svc::domain::{
    catalog::{Catalog, Level},
    family::{Family, FileText},
    graph,
    models::ModelCatalogue,
    name::{AgentType, PersonaName, TemplateName},
    prompt::{Mode, SharedTexts},
    resolve::{self, Inherited, ResolveContext, SpawnRequest},
    role,
    rules::Rules,
    template::Scope,
};

const ROLE: &str = include_str!("../../templates/agents/orchestrator.md");
const GRAPH: &str = include_str!("../../templates/graph/planner.md");
const SYSTEM: &str = include_str!("../../templates/system/system.md");
const PLANNING: &str = include_str!("../../templates/modes/planning.md");
const IMPLEMENTATION: &str = include_str!("../../templates/modes/implementation.md");
const FOOTER: &str = include_str!("../../templates/collab/codex_system_footer.md");

criterion_group!(benches, resolve_spawn, parse);
criterion_main!(benches);

fn resolve_spawn(criterion: &mut Criterion) {
    let models = ModelCatalogue::default();
    let texts = SharedTexts {
        system: SYSTEM.into(),
        planning: PLANNING.into(),
        implementation: IMPLEMENTATION.into(),
    };
    let request = SpawnRequest {
        wanted: Some(TemplateName::AgentType(AgentType::parse("role-5").unwrap())),
        agent_name: Some(PersonaName::normalise("thorough")),
        model: None,
        effort: None,
        provider: None,
        inherited: Inherited::default(),
        mode: Mode::Implementation,
        expected_digest: None,
    };
    let mut group = criterion.benchmark_group("resolve among");
    for roles in [10, 1_000] {
        let catalog = catalog(roles);
        let context = ResolveContext {
            catalog: &catalog,
            models: &models,
            texts: &texts,
            footer: FOOTER,
        };
        group.bench_function(BenchmarkId::from_parameter(roles), |bencher| {
            bencher.iter(|| resolve::resolve(black_box(&request), context).unwrap());
        });
    }
    group.finish();
}

fn parse(criterion: &mut Criterion) {
    let name = AgentType::parse("orchestrator").unwrap();
    let mut group = criterion.benchmark_group("parse");
    group.throughput(Throughput::Bytes(ROLE.len() as u64));
    group.bench_function("role", |bencher| {
        bencher.iter(|| role::parse(&name, black_box(ROLE)).template.unwrap());
    });
    group.throughput(Throughput::Bytes(GRAPH.len() as u64));
    group.bench_function("graph", |bencher| {
        bencher.iter(|| graph::parse(black_box(GRAPH)).template.unwrap());
    });
    group.finish();
}

/// Returns a catalogue with the given number of roles, which differ only in their names.
fn catalog(roles: usize) -> Catalog {
    let read = |number: usize| {
        let stem = format!("role-{number}");
        let file = FileText {
            path: &stem,
            stem: &stem,
            scope: Scope::Project,
            text: Ok(ROLE),
        };
        Arc::new(Family::Roles.read(file, &Rules::default()).unwrap())
    };
    let catalog = Catalog::build(&[Level {
        files: (0..roles).map(read).collect(),
        notes: Vec::new(),
    }]);
    assert_eq!(catalog.agent_types().count(), roles);
    catalog
}
