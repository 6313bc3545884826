//! Sessions and threads as clients see them.

use std::collections::BTreeMap;

use supervisor_log::codec::{
    enums::WireEnum as _,
    origins_to_pb,
    parts::{
        bounded, duration_to_pb, limits_to_pb, result_to_pb, settled_to_pb, source_to_pb, text_or_empty, time_to_pb,
        usage_to_pb,
    },
    policy,
    settings::settings_to_pb,
};
use troupe_proto::supervisor::v1 as pb;

use super::Redaction;
use crate::domain::{
    event::ConditionKind,
    ids::ThreadId,
    rules::{cascade::CASCADE_DEADLINE, limits},
    settings::Usage,
    state::{session::Session, thread::Thread},
    status::{Status, StatusKind},
    time::UnixMillis,
};

/// Which data of a thread is visible to a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Whether the ids of the thread's children are included.
    pub tree: bool,
    /// Which texts are visible.
    pub redaction: Redaction,
}

/// Builds the message of a session's thread. [`add_telemetry`] adds the volatile values of its runner, and callers
/// that know the runners add NO_RUNNER.
#[must_use]
pub fn thread(session: &Session, thread: &Thread, view: View) -> pb::Thread {
    let spawned = &thread.spawned;
    let mut status = status(&thread.status, thread.since);
    if let Some(content) = status.content.as_mut().filter(|_| !view.redaction.has_texts()) {
        content.preview.clear();
    }
    let child_thread_ids = if view.tree {
        thread.children.iter().map(ThreadId::to_string).collect()
    } else {
        Vec::new()
    };
    pb::Thread {
        session_id: session.id.to_string(),
        thread_id: thread.id.to_string(),
        parent_thread_id: text_or_empty(spawned.parent),
        depth: spawned.depth,
        agent_type: spawned.role.agent_type.clone(),
        agent_name: spawned.role.agent_name.clone(),
        label: spawned.label.clone(),
        alias: spawned.alias.clone(),
        thread_note: thread.note.as_ref().to_owned(),
        status: Some(status),
        conditions: conditions(session, thread)
            .map(|condition| view.redaction.condition(condition))
            .collect(),
        model: spawned.role.model.clone(),
        reasoning_effort: spawned.role.reasoning_effort.clone(),
        provider: spawned.role.provider.clone(),
        sandbox: thread.sandbox.number(),
        tool_policy: Some(policy::to_proto(&thread.effective)),
        source: spawned.role.source.as_ref().map(source_to_pb),
        generation: thread.generation.get(),
        usage: Some(usage_to_pb(thread.total_usage())),
        context_left_percent: None,
        last_tool: None,
        activity: String::new(),
        plan: Vec::new(),
        runner_id: text_or_empty(thread.runner.as_ref()),
        create_time: Some(time_to_pb(thread.created)),
        update_time: Some(time_to_pb(thread.updated)),
        sequence: thread.sequence.get(),
        queue_position: session.queue_position(thread.id).unwrap_or_default(),
        working_directory: spawned.working_directory.as_ref().to_owned(),
        child_thread_ids,
        edge_management: spawned.edge_management.number(),
        spawn_list: spawned.role.spawn_list.clone(),
        grant: Some(policy::to_proto(&thread.grant)),
        close_policy: spawned.close_policy.number(),
        wake_policy: spawned.wake_policy.number(),
        budget: bounded(thread.budget),
        result: thread
            .result
            .as_ref()
            .map(|result| view.redaction.result(result_to_pb(result))),
        earlier_usage: Some(usage_to_pb(thread.earlier_usage)),
        subtree_usage: Some(usage_to_pb(thread.subtree_usage)),
        turn: thread.present_turn().get(),
        origins: origins_to_pb(&spawned.role.origins),
    }
}

/// Returns the recorded conditions, and CLOSING for an open thread under a fence, since the time of the nearest fence.
fn conditions(session: &Session, thread: &Thread) -> impl Iterator<Item = pb::Condition> {
    let is_open = thread.status.kind().is_open();
    let mut above = session.lineage(thread.id).filter(|_| is_open);
    let closing = above.find_map(|fenced| {
        let fence = fenced.fence.as_ref()?;
        Some(pb::Condition {
            kind: ConditionKind::Closing.number(),
            since: fenced.fenced_since().map(time_to_pb),
            reason: fence.reason.clone(),
        })
    });
    let recorded = thread.conditions.iter().map(|(kind, (since, reason))| pb::Condition {
        kind: kind.number(),
        since: Some(time_to_pb(*since)),
        reason: reason.clone(),
    });
    closing.into_iter().chain(recorded)
}

/// Adds the latest telemetry of a runner to a thread, unless the telemetry belongs to another attempt.
pub fn add_telemetry(thread: &mut pb::Thread, telemetry: Option<&pb::Telemetry>) {
    let Some(telemetry) = telemetry.filter(|telemetry| telemetry.generation == thread.generation) else {
        return;
    };
    thread.context_left_percent = telemetry.context_left_percent;
    thread.last_tool.clone_from(&telemetry.last_tool);
    thread.activity.clone_from(&telemetry.activity);
    thread.plan.clone_from(&telemetry.plan);
    thread.usage = match (thread.usage, telemetry.usage) {
        (Some(recorded), Some(metered)) => Some(newer(recorded, metered)),
        (recorded, metered) => metered.or(recorded),
    };
}

/// Combines two readings of a thread's counters. Counters only grow, so the larger value of each is the newer one. The
/// log (`one`) contains checkpoints and the ends of turns. Telemetry (`other`) may be older or newer. The cost comes
/// from the reading with more tokens. If both have equally many tokens, it comes from the log.
fn newer(one: pb::Usage, other: pb::Usage) -> pb::Usage {
    let span = |usage: &pb::Usage| usage.wall_time.map(|time| (time.seconds, time.nanos));
    let tokens = |usage: &pb::Usage| usage.input_tokens.saturating_add(usage.output_tokens);
    let priced = if tokens(&other) > tokens(&one) { other } else { one };
    pb::Usage {
        input_tokens: one.input_tokens.max(other.input_tokens),
        cached_input_tokens: one.cached_input_tokens.max(other.cached_input_tokens),
        output_tokens: one.output_tokens.max(other.output_tokens),
        turns: one.turns.max(other.turns),
        wall_time: if span(&one) < span(&other) {
            other.wall_time
        } else {
            one.wall_time
        },
        cost_micros: priced.cost_micros,
        unpriced_tokens: priced.unpriced_tokens,
    }
}

/// Builds the message of a status, with the time of its start.
#[must_use]
pub fn status(status: &Status, since: UnixMillis) -> pb::Status {
    match status {
        Status::Queued | Status::AwaitingApproval | Status::PendingInit | Status::Running => pb::Status {
            kind: status.kind().number(),
            since: Some(time_to_pb(since)),
            ..pb::Status::default()
        },
        Status::Settled(settled) => settled_to_pb(settled, Some(since)),
        Status::Shutdown { reason, before: _ } => pb::Status {
            kind: status.kind().number(),
            since: Some(time_to_pb(since)),
            reason: reason.clone(),
            ..pb::Status::default()
        },
    }
}

/// Builds the message of a session, with its threads' states and usage.
#[must_use]
pub fn session(session: &Session) -> pb::Session {
    pb::Session {
        session_id: session.id.to_string(),
        root_thread_id: text_or_empty(session.root_id()),
        budget: bounded(session.settings.budget),
        paused: session.paused,
        closed: session.closed,
        create_time: Some(time_to_pb(session.created)),
        update_time: Some(time_to_pb(session.updated)),
        sequence: session.sequence.get(),
        roll_up: Some(roll_up(session)),
        ..settings_to_pb(&session.settings)
    }
}

/// Returns the states and usage of a whole session from its maintained counters.
fn roll_up(session: &Session) -> pb::RollUp {
    rolled_up(|kind| session.count(kind), session.usage())
}

/// Returns the states and usage of a thread and its subtree. Walks the subtree, so call it only for a client that
/// requests these values.
#[must_use]
pub fn roll_up_of(session: &Session, top: &Thread) -> pb::RollUp {
    let mut counts = BTreeMap::new();
    for thread in session.subtree(top.id) {
        *counts.entry(thread.status.kind()).or_insert(0) += 1;
    }
    rolled_up(|kind| counts.get(&kind).copied().unwrap_or_default(), top.subtree_usage)
}

fn rolled_up(count: impl Fn(StatusKind) -> u32, usage: Usage) -> pb::RollUp {
    let threads = StatusKind::ALL
        .into_iter()
        .map(|kind| pb::StatusCount {
            kind: kind.number(),
            count: count(kind),
        })
        .filter(|counted| counted.count > 0)
        .collect();
    pb::RollUp {
        threads,
        usage: Some(usage_to_pb(usage)),
    }
}

/// Returns the usage of a session's limits, as visible to the given thread.
#[must_use]
pub fn quota(session: &Session, asking: &Thread) -> pb::Quota {
    let settings = &session.settings;
    pb::Quota {
        limits: Some(limits_to_pb(settings.limits)),
        active_threads: limits::active(session),
        queued_threads: session.count(StatusKind::Queued),
        open_threads: counted(session.open_count()),
        total_threads: counted(session.total()),
        budget: bounded(settings.budget),
        usage: Some(usage_to_pb(session.usage())),
        remaining_depth: settings.limits.max_depth.saturating_sub(asking.spawned.depth),
        close_deadline: Some(duration_to_pb(CASCADE_DEADLINE)),
        thread_budget: bounded(asking.budget),
        thread_usage: Some(usage_to_pb(asking.subtree_usage)),
    }
}

fn counted(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
