//! Threads and their parts.

use serde_json::{Value, json};
use troupe_proto::supervisor::v1::{Budget, Condition, ContentRef, PlanStep, Status, Thread, ToolUse, Usage};

use super::{common, duration, list, name, optional, time};
use crate::names;

/// A thread.
pub(crate) fn thread(thread: &Thread) -> Value {
    json!({
        "session_id": thread.session_id,
        "thread_id": thread.thread_id,
        "parent_thread_id": thread.parent_thread_id,
        "depth": thread.depth,
        "agent_type": thread.agent_type,
        "agent_name": thread.agent_name,
        "label": thread.label,
        "alias": thread.alias,
        "thread_note": thread.thread_note,
        "status": optional(thread.status.as_ref(), status),
        "conditions": list(&thread.conditions, condition),
        "model": thread.model,
        "reasoning_effort": thread.reasoning_effort,
        "provider": thread.provider,
        "sandbox": name(names::sandbox(thread.sandbox())),
        "tool_policy": optional(thread.tool_policy.as_ref(), common::policy),
        "grant": optional(thread.grant.as_ref(), common::policy),
        "spawn_list": thread.spawn_list,
        "edge_management": name(names::edge_management(thread.edge_management())),
        "source": optional(thread.source.as_ref(), common::source),
        "generation": thread.generation,
        "usage": optional(thread.usage.as_ref(), usage),
        "budget": optional(thread.budget.as_ref(), budget),
        "context_left_percent": thread.context_left_percent,
        "last_tool": optional(thread.last_tool.as_ref(), tool_use),
        "activity": thread.activity,
        "plan": list(&thread.plan, plan_step),
        "runner_id": thread.runner_id,
        "working_directory": thread.working_directory,
        "close_policy": name(names::close_policy(thread.close_policy())),
        "wake_policy": name(names::wake_policy(thread.wake_policy())),
        "queue_position": thread.queue_position,
        "child_thread_ids": thread.child_thread_ids,
        "create_time": time(thread.create_time.as_ref()),
        "update_time": time(thread.update_time.as_ref()),
        "sequence": thread.sequence,
    })
}

/// A status.
pub(crate) fn status(status: &Status) -> Value {
    json!({
        "kind": name(names::status_kind(status.kind())),
        "message": status.message,
        "since": time(status.since.as_ref()),
        "reason": status.reason,
        "content": optional(status.content.as_ref(), content),
    })
}

/// Converts a reference to content that is stored outside of the events.
pub(super) fn content(content: &ContentRef) -> Value {
    json!({
        "digest": content.digest,
        "size": content.size,
        "preview": content.preview,
    })
}

/// Converts the usage of models and time.
pub(super) fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "cached_input_tokens": usage.cached_input_tokens,
        "output_tokens": usage.output_tokens,
        "turns": usage.turns,
        "wall_time": duration(usage.wall_time.as_ref()),
    })
}

/// Converts a budget.
pub(super) fn budget(budget: &Budget) -> Value {
    json!({
        "tokens": budget.tokens,
        "turns": budget.turns,
        "wall_time": duration(budget.wall_time.as_ref()),
    })
}

/// The last tool used.
pub(super) fn tool_use(tool: &ToolUse) -> Value {
    json!({ "name": tool.name, "detail": tool.detail })
}

/// A step of a plan.
pub(super) fn plan_step(step: &PlanStep) -> Value {
    json!({
        "step": step.step,
        "state": name(names::plan_state(step.state())),
    })
}

fn condition(condition: &Condition) -> Value {
    json!({
        "kind": name(names::condition_kind(condition.kind())),
        "since": time(condition.since.as_ref()),
        "reason": condition.reason,
    })
}
