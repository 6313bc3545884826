//! Properties of all patterns, layers and chains of children.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use tool_policy::{Inheritance, Layer, MatchMode, NativeTools, Pattern, Policy, Rights};

/// A naive implementation of the glob rule, used as the reference.
fn naive(pattern: &[char], name: &[char]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some(('*', rest)) => (0..=name.len()).any(|taken| naive(rest, &name[taken..])),
        Some(('?', rest)) => !name.is_empty() && naive(rest, &name[1..]),
        Some((c, rest)) => name.first() == Some(c) && naive(rest, &name[1..]),
    }
}

fn text(alphabet: &'static str, length: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    vec(select(alphabet.chars().collect::<Vec<char>>()), length).prop_map(|chars| chars.into_iter().collect())
}

const PATTERN_ALPHABET: &str = "**???ab[]{}!\\/.,-^é€😀";
const NAME_ALPHABET: &str = "aab[]{}!\\/.,-^*?é€😀\n\u{1}\u{80}";

/// Generates tool names that the patterns of [`pattern`] often match.
fn tool() -> impl Strategy<Value = String> {
    prop_oneof![
        select(vec![
            "wait",
            "exec",
            "exec_command",
            "plan",
            "Wait",
            "mcp__a",
            "mcp__b",
            "Bash",
            "Monitor",
            ""
        ])
        .prop_map(str::to_owned),
        text("ab_", 1..4),
    ]
}

fn pattern() -> impl Strategy<Value = String> {
    prop_oneof![
        select(vec![
            "*", "?*", "mcp*", "mcp__?", "mcp__a", "wait", "WAIT", "exec", "exec*", "plan", "Bash", "Mon*"
        ])
        .prop_map(str::to_owned),
        text("aabb_*?", 1..4),
    ]
}

fn mode() -> impl Strategy<Value = MatchMode> {
    select(vec![MatchMode::Glob, MatchMode::GlobIgnoreCase, MatchMode::Literal])
}

fn layer() -> impl Strategy<Value = Layer> {
    (
        select(vec!["ceiling", "role \"a\"", "role \"b\""]),
        mode(),
        vec(pattern(), 0..4),
        vec(pattern(), 0..3),
    )
        .prop_map(|(origin, mode, allow, deny)| Layer {
            origin: origin.to_owned(),
            mode,
            allow,
            deny,
        })
}

fn policy() -> impl Strategy<Value = Policy> {
    vec(layer(), 0..4).prop_map(|layers| Policy::compile(layers).unwrap())
}

fn allows_native(policy: &Policy, tool: &str) -> bool {
    policy.decide_native(&NativeTools::CLAUDE, tool).is_allowed()
}

proptest! {
    #[test]
    fn globs_match_like_naive_rule(
        pattern in text(PATTERN_ALPHABET, 1..7),
        name in text(NAME_ALPHABET, 0..7),
    ) {
        let expected = naive(&pattern.chars().collect::<Vec<_>>(), &name.chars().collect::<Vec<_>>());
        let compiled = Pattern::new(pattern.as_str(), MatchMode::Glob).unwrap();
        prop_assert_eq!(compiled.matches(&name), expected);
    }

    #[test]
    fn pattern_matches_names_built_from_it(
        pattern in text(PATTERN_ALPHABET, 1..9),
        runs in vec(text(NAME_ALPHABET, 0..4), 9),
        singles in vec(text(NAME_ALPHABET, 1..2), 9),
    ) {
        let mut name = String::new();
        for (position, c) in pattern.chars().enumerate() {
            match c {
                '*' => name.push_str(&runs[position]),
                '?' => name.push_str(&singles[position]),
                other => name.push(other),
            }
        }
        prop_assert!(Pattern::new(pattern.as_str(), MatchMode::Glob).unwrap().matches(&name), "{name:?}");
        prop_assert!(Pattern::new(pattern.as_str(), MatchMode::GlobIgnoreCase).unwrap().matches(&name), "{name:?}");
    }

    #[test]
    fn ignoring_case_matches_like_naive_rule_on_lower_case(
        pattern in text("*?aAbBÉé.", 1..6),
        name in text("aAbBÉé.", 0..6),
    ) {
        let lower = |text: &str| text.to_lowercase().chars().collect::<Vec<_>>();
        let compiled = Pattern::new(pattern.as_str(), MatchMode::GlobIgnoreCase).unwrap();
        prop_assert_eq!(compiled.matches(&name), naive(&lower(&pattern), &lower(&name)));
    }

    #[test]
    fn layer_decides_like_its_single_patterns(layer in layer(), tool in tool()) {
        let any = |list: &[String]| list.iter().any(|text| {
            Pattern::new(text.as_str(), layer.mode).unwrap().matches(&tool)
        });
        let denied = any(&layer.deny) || layer.deny.iter().any(|text| text == "*");
        let expected = !denied && (layer.allow.is_empty() || any(&layer.allow));
        prop_assert_eq!(Policy::compile(vec![layer]).unwrap().allows(&tool), expected);
    }

    #[test]
    fn deny_always_wins(policy in policy(), mode in mode(), tool in "[a-zA-Z_]{1,8}") {
        let layer = Layer { origin: "last".to_owned(), mode, allow: vec![tool.clone()], deny: vec![tool.clone()] };
        let denying = policy.and(&layer).unwrap();
        prop_assert!(!denying.allows(&tool));
        prop_assert!(!allows_native(&denying, &tool));
    }

    #[test]
    fn additional_layer_never_loosens(policy in policy(), layer in layer(), tool in tool()) {
        let tighter = policy.and(&layer).unwrap();
        prop_assert!(policy.allows(&tool) || !tighter.allows(&tool));
        prop_assert!(allows_native(&policy, &tool) || !allows_native(&tighter, &tool));
    }

    #[test]
    fn allows_agrees_with_decide(policy in policy(), tool in tool()) {
        prop_assert_eq!(policy.allows(&tool), policy.decide(&tool).is_allowed());
    }

    #[test]
    fn intersection_allows_common_tools(one in policy(), other in policy(), tool in tool()) {
        let both = one.intersect(&other);
        prop_assert_eq!(both.allows(&tool), one.allows(&tool) && other.allows(&tool));
        prop_assert_eq!(other.intersect(&one).allows(&tool), both.allows(&tool));
        prop_assert_eq!(both.intersect(&one), both.clone());
        prop_assert_eq!(both.intersect(&other), both);
    }

    #[test]
    fn order_and_duplicates_do_not_matter(layers in vec(layer(), 0..4), tool in tool()) {
        let policy = Policy::compile(layers.clone()).unwrap();
        let mut reordered = layers;
        reordered.reverse();
        for layer in &mut reordered {
            layer.allow.reverse();
            layer.deny.reverse();
            layer.allow.extend_from_within(..);
            layer.deny.extend_from_within(..);
        }
        reordered.extend_from_within(..);
        let reordered = Policy::compile(reordered).unwrap();
        prop_assert_eq!(reordered.allows(&tool), policy.allows(&tool));
        prop_assert_eq!(allows_native(&reordered, &tool), allows_native(&policy, &tool));
    }

    #[test]
    fn permissions_only_shrink(
        ceiling in policy(),
        path in vec((option::of(layer()), vec(layer(), 0..3), vec(pattern(), 0..3)), 1..5),
        tools in vec(tool(), 8),
    ) {
        let mut parent = Rights::root(ceiling.clone());
        for (narrowing, role, grant_list) in path {
            let inheritance = Inheritance::Attenuate;
            let child = Rights::child(&parent.grant, narrowing.as_ref(), &role, &grant_list, "r", inheritance).unwrap();
            let narrow = Policy::compile(narrowing.into_iter().collect()).unwrap();
            for tool in &tools {
                prop_assert!(!child.effective.allows(tool) || narrow.allows(tool));
                prop_assert!(!child.grant.allows(tool) || narrow.allows(tool));
                prop_assert!(!child.effective.allows(tool) || parent.grant.allows(tool));
                prop_assert!(!child.grant.allows(tool) || parent.grant.allows(tool));
                prop_assert!(!child.effective.allows(tool) || ceiling.allows(tool));
                prop_assert!(!allows_native(&child.effective, tool) || allows_native(&parent.grant, tool));
                if grant_list.is_empty() {
                    prop_assert_eq!(child.grant.allows(tool), child.effective.allows(tool));
                }
            }
            parent = child;
        }
    }

    #[test]
    fn ceiling_inheritance_passes_ceiling_to_every_thread(
        ceiling in policy(),
        path in vec((vec(layer(), 0..3), vec(pattern(), 0..3)), 1..4),
        tool in tool(),
    ) {
        let mut parent = Rights::root(ceiling.clone());
        for (role, grant_list) in path {
            parent = Rights::child(&parent.grant, None, &role, &grant_list, "r", Inheritance::Ceiling).unwrap();
            prop_assert_eq!(&parent.grant, &ceiling);
            prop_assert!(!parent.effective.allows(&tool) || ceiling.allows(&tool));
        }
    }
}
