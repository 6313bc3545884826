//! Cost of policies: deciding a call, compiling the layers of a role, and deriving a child's permissions from its
//! parent's.
//!
//! ```text
//! cargo bench -p tool-policy --bench policy
//! ```
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use tool_policy::{Inheritance, Layer, MatchMode, Policy, Rights};

/// The role's allow list: names of tools, and a pattern for a group of tools.
const ALLOW: &[&str] = &[
    "apply_patch",
    "close_agent",
    "exec_command",
    "grep_files",
    "list_dir",
    "mcp__*",
    "read_file",
    "send_input",
    "spawn_agent",
    "update_plan",
    "wait",
    "web_search",
];
/// The role's deny list.
const DENY: &[&str] = &["mcp__*__delete_*", "mcp__shell__*"];

/// A call of each kind, with the expected decision.
const CALLS: &[(&str, &str, bool)] = &[
    ("allowed", "mcp__search__query", true),
    ("denied", "mcp__files__delete_all", false),
    ("not listed", "image_view", false),
];

criterion_group!(benches, decide, compile, child);
criterion_main!(benches);

/// Measures decisions. A thread has one layer for each role above it.
fn decide(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decide");
    for layers in [1, 4, 16] {
        let policy = Policy::compile((0..layers).map(role).collect()).unwrap();
        assert_eq!(policy.layers().len(), layers, "equal layers count once");
        for (kind, tool, is_allowed) in CALLS {
            assert_eq!(policy.allows(tool), *is_allowed, "{tool}");
            group.bench_function(BenchmarkId::new(*kind, layers), |bencher| {
                bencher.iter(|| policy.decide(black_box(tool)));
            });
        }
    }
    group.finish();
}

fn compile(criterion: &mut Criterion) {
    criterion.bench_function("compile", |bencher| {
        bencher.iter_batched(
            || vec![role(0)],
            |layers| Policy::compile(layers).unwrap(),
            BatchSize::SmallInput,
        );
    });
}

fn child(criterion: &mut Criterion) {
    let grant = Policy::compile(vec![role(0)]).unwrap();
    let own = [role(1)];
    criterion.bench_function("rights of a child", |bencher| {
        bencher.iter(|| Rights::child(&grant, None, &own, &[], "worker", Inheritance::Attenuate).unwrap());
    });
}

/// Returns the layer of a role. Different numbers give different layers.
fn role(number: usize) -> Layer {
    let owned = |patterns: &[&str]| patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
    Layer {
        origin: format!("role \"r{number}\""),
        mode: MatchMode::Glob,
        allow: owned(ALLOW),
        deny: owned(DENY),
    }
}
