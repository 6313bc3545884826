//! Sessions.

use serde_json::{Value, json};
use troupe_proto::supervisor::v1::{Limits, RollUp, Session, StallRule, Webhook};

use super::{common, duration, list, name, name_list, optional, thread, time};
use crate::names;

/// A session.
pub(crate) fn session(session: &Session) -> Value {
    json!({
        "session_id": session.session_id,
        "root_thread_id": session.root_thread_id,
        "cwd": session.cwd,
        "workspace_digest": session.workspace_digest,
        "limits": optional(session.limits.as_ref(), limits),
        "slot_release": name(names::slot_release(session.slot_release())),
        "budget": optional(session.budget.as_ref(), thread::budget),
        "mode": name(names::mode(session.mode())),
        "orchestration": name(names::orchestration(session.orchestration())),
        "approve_orchestrators": session.approve_orchestrators,
        "edge_management": name(names::edge_management(session.edge_management())),
        "orchestrators": session.orchestrators,
        "prompt_log": name(names::prompt_log(session.prompt_log())),
        "restart_policy": name(names::restart_policy(session.restart_policy())),
        "policy_inheritance": name(names::policy_inheritance(session.policy_inheritance())),
        "tool_ceiling": optional(session.tool_ceiling.as_ref(), common::layer),
        "approve_tools": session.approve_tools,
        "runner_labels": session.runner_labels,
        "stall": optional(session.stall.as_ref(), stall),
        "webhooks": list(&session.webhooks, webhook),
        "labels": session.labels,
        "paused": session.paused,
        "closed": session.closed,
        "create_time": time(session.create_time.as_ref()),
        "update_time": time(session.update_time.as_ref()),
        "sequence": session.sequence,
        "roll_up": optional(session.roll_up.as_ref(), roll_up),
    })
}

/// The limits of a session.
pub(super) fn limits(limits: &Limits) -> Value {
    json!({
        "max_depth": limits.max_depth,
        "max_threads": limits.max_threads,
        "max_open_threads": limits.max_open_threads,
        "max_total_threads": limits.max_total_threads,
    })
}

fn stall(rule: &StallRule) -> Value {
    json!({
        "repeats": rule.repeats,
        "silence": duration(rule.silence.as_ref()),
    })
}

/// A receiver of notifications, without its secret.
pub(super) fn webhook(webhook: &Webhook) -> Value {
    json!({
        "url": webhook.url,
        "kinds": name_list(webhook.kinds(), names::notification_kind),
    })
}

fn roll_up(roll_up: &RollUp) -> Value {
    json!({
        "threads": list(&roll_up.threads, |count| json!({
            "kind": name(names::status_kind(count.kind())),
            "count": count.count,
        })),
        "usage": optional(roll_up.usage.as_ref(), thread::usage),
    })
}
