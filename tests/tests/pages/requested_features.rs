//! The most frequent feature requests of users of agent programs, with the tests for them, as `file::test`.
//!
//! |    | request | test |
//! |----|---------|------|
//! | 1  | a depth limit that cannot be bypassed | `spawning::spawn_below_max_depth_is_rejected` |
//! | 1  | | `resume::resume_has_checks_like_a_spawn` |
//! | 2  | slots freed by settling, also right after a crash | `spawning::queued_threads_are_admitted_in_order` |
//! | 2  | | `group_kills::group_survives_kills_of_supervisor_and_runner` |
//! | 3  | a queue instead of an error, and known capacity | `spawning::queued_threads_are_admitted_in_order` |
//! | 3  | | `spawning::concurrent_spawns_do_not_exceed_max_threads` |
//! | 3  | | `spawning::quota_reports_the_use_of_each_limit` |
//! | 4  | completions are never lost | `mail::mail_is_kept_until_acknowledged_across_restart` |
//! | 4  | | `notifications::missed_notifications_are_delivered_after_restart` |
//! | 5  | a watch that survives a disconnect | `watching::watch_resumes_at_any_position_without_gap` |
//! | 5  | | `watching::slow_watcher_misses_nothing_and_delays_none` |
//! | 5  | | `watching::position_of_another_log_is_rejected` |
//! | 6  | a stop that stops the subtree | `runners::interrupt_response_names_stopped_threads` |
//! | 6  | | `closing::spawns_during_a_close_are_closed_or_rejected` |
//! | 6  | | `closing::cascade_stops_leaves_first_and_starts_nothing` |
//! | 7  | close, wait and spawn that always return | `closing::silent_runner_is_closed_at_the_deadline` |
//! | 7  | | `spawning::unavailable_registry_spawns_and_records_nothing` |
//! | 8  | the whole tree after a crash | `passivation::passivated_session_is_unchanged_on_activation` |
//! | 8  | | `closing::cascade_continues_after_restart` |
//! | 8  | | `runners::restart_policy_decides_after_runner_loss` |
//! | 9  | budgets with a hard stop, of a child and of the tree | `budgets::token_budget_stops_turn_by_telemetry` |
//! | 9  | | `budgets::wall_time_budget_stops_turn_of_silent_runner` |
//! | 9  | | `budgets::session_budget_limits_its_threads` |
//! | 10 | slow runners distinguished from dead ones | `leases::half_a_lease_without_runner_sets_unreachable` |
//! | 10 | | `leases::silence_is_a_stall_until_the_next_message` |
//! | 11 | a visible tree: task, role, model, activity | `watching::subtree_watch_has_own_events_and_fences_above` |
//! | 11 | | `telemetry_values::thread_contains_latest_plan_tool_and_usage` |
//! | 12 | the requested role and model | `spawning::runner_receives_resolved_values_and_origins` |
//! | 12 | | `resume::resumed_thread_keeps_its_settled_status` |
//! | 13 | permissions of a child within those of its parent | `hostile_child::spawn_never_exceeds_its_parents_permissions` |
//! | 13 | approvals that reach an operator | `tools::gated_call_waits_only_for_an_operator` |
//! | 13 | | `approvals::spawn_by_project_template_awaits_operator` |
//! | 14 | control from outside, with ownership | `runners::session_runner_gets_only_threads_of_its_session` |
//! | 14 | | `runners::input_to_settled_thread_starts_turn_with_new_input` |
//! | 14 | | `hostile_child::target_outside_subtree_is_indistinguishable_from_unknown` |
//! | 15 | templates: reloaded, diagnosed, pinned | `spawning::edited_template_applies_to_next_spawn` |
//! | 15 | | `watch::changes_on_disk_are_sent_as_differences` |
//! | 15 | | `grpc::unreadable_files_are_diagnosed_and_do_not_affect_others` |

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use troupe_tests::page::{has_test, root, sources};

/// Returns the texts of the test files of all crates by file name, concatenated if several files have one name.
fn tests() -> BTreeMap<String, String> {
    let mut tests: BTreeMap<String, String> = BTreeMap::new();
    for member in fs::read_dir(root()).unwrap() {
        let member = member.unwrap().path();
        let directory = member.join("tests");
        if !member.join("Cargo.toml").is_file() || !directory.is_dir() {
            continue;
        }
        for path in sources(&directory) {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            *tests.entry(name).or_default() += &fs::read_to_string(&path).unwrap();
        }
    }
    tests
}

#[test]
fn tests_of_the_feature_table_exist() {
    let tests = tests();
    let mut numbers = BTreeSet::new();
    for row in include_str!("requested_features.rs").lines() {
        let Some(row) = row.strip_prefix("//! | ") else {
            continue;
        };
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        // The header row has no number.
        let Ok(number) = cells[0].parse::<u32>() else {
            continue;
        };
        let name = cells[2].trim_matches('`');
        let (file, test) = name.split_once("::").unwrap();
        let exists = tests.get(file).is_some_and(|text| has_test(text, test));
        assert!(exists, "{name} of row {number} does not exist");
        numbers.insert(number);
    }
    assert_eq!(numbers, (1..=15).collect::<BTreeSet<u32>>());
}
