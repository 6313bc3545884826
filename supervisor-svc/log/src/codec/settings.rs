//! Session settings and changes to them. These messages never contain webhook secrets or the content of an uploaded
//! workspace. A record stores both in its private part. The secrets have the order of the webhooks.

use std::{collections::BTreeMap, time::Duration};

use supervisor_core::{
    event::SettingsChange,
    settings::{
        ApprovalTimeoutAction, Currency, EdgeManagement, Mode, NotificationKind, Orchestration, PromptLog,
        RestartPolicy, Settings, SlotRelease, StallRule, TranscriptLog, Webhook,
    },
};
use tool_policy::Inheritance;
use troupe_proto::{store::v1::Private, supervisor::v1 as pb};

use super::{
    enums::WireEnum as _,
    error::{DecodeError, malformed, required},
    parts::{
        budget_to_pb, content_from_pb, content_to_pb, duration_from_pb, duration_to_pb, limits_to_pb, span,
        stored_budget, stored_limits, zero_bounds,
    },
    policy::{layer_from_proto, layer_to_proto},
};

/// Returns the settings as the message of an otherwise empty session.
#[must_use]
pub fn settings_to_pb(settings: &Settings) -> pb::Session {
    let labels: BTreeMap<String, String> = settings
        .labels
        .iter()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    pb::Session {
        cwd: settings.cwd.clone(),
        workspace_digest: settings.workspace_digest.clone(),
        limits: Some(limits_to_pb(settings.limits)),
        slot_release: settings.slot_release.number(),
        budget: Some(budget_to_pb(settings.budget)),
        mode: settings.mode.number(),
        orchestration: settings.orchestration.number(),
        approve_orchestrators: settings.approve_orchestrators,
        edge_management: settings.edge_management.number(),
        orchestrators: settings.orchestrators.clone(),
        prompt_log: settings.prompt_log.number(),
        transcript: settings.transcript.number(),
        approval_timeout: Some(duration_to_pb(settings.approval_timeout)),
        on_approval_timeout: settings.on_approval_timeout.number(),
        restart_policy: settings.restart_policy.number(),
        policy_inheritance: settings.policy_inheritance.number(),
        tool_ceiling: settings.tool_ceiling.as_ref().map(layer_to_proto),
        webhooks: settings.webhooks.iter().map(webhook_to_pb).collect(),
        labels,
        approve_tools: settings.approve_tools.clone(),
        runner_labels: settings.runner_labels.clone(),
        stall: Some(stall_to_pb(settings.stall)),
        retention: settings.retention.map(duration_to_pb),
        currency: settings.currency.as_str().to_owned(),
        ..pb::Session::default()
    }
}

pub(super) fn stored_settings(session: pb::Session, private: Private) -> Result<Settings, DecodeError> {
    Ok(Settings {
        cwd: session.cwd,
        workspace_digest: session.workspace_digest,
        limits: stored_limits(required(session.limits, "the limits")?)?,
        slot_release: SlotRelease::from_number(session.slot_release)?,
        budget: stored_budget(session.budget, &private)?,
        mode: Mode::from_number(session.mode)?,
        orchestration: Orchestration::from_number(session.orchestration)?,
        approve_orchestrators: session.approve_orchestrators,
        edge_management: EdgeManagement::from_number(session.edge_management)?,
        orchestrators: session.orchestrators,
        prompt_log: PromptLog::from_number(session.prompt_log)?,
        transcript: TranscriptLog::from_number(session.transcript)?,
        approval_timeout: stored_duration(session.approval_timeout, "the approval timeout")?,
        on_approval_timeout: ApprovalTimeoutAction::from_number(session.on_approval_timeout)?,
        restart_policy: RestartPolicy::from_number(session.restart_policy)?,
        policy_inheritance: Inheritance::from_number(session.policy_inheritance)?,
        tool_ceiling: session.tool_ceiling.map(layer_from_proto).transpose()?,
        workspace: private.workspace.map(content_from_pb).transpose()?,
        webhooks: stored_webhooks(session.webhooks, private.webhook_secrets)?,
        labels: session.labels.into_iter().collect::<BTreeMap<_, _>>(),
        approve_tools: session.approve_tools,
        runner_labels: session.runner_labels,
        stall: stored_stall(required(session.stall, "the stall rule")?)?,
        retention: span(session.retention, "the retention")?,
        currency: Currency::parse(&session.currency).map_err(malformed)?,
    })
}

fn stall_to_pb(rule: StallRule) -> pb::StallRule {
    pb::StallRule {
        repeats: rule.repeats,
        silence: Some(duration_to_pb(rule.silence)),
    }
}

fn stored_stall(rule: pb::StallRule) -> Result<StallRule, DecodeError> {
    Ok(StallRule {
        repeats: rule.repeats,
        silence: stored_duration(rule.silence, "the silence of a stall")?,
    })
}

fn stored_duration(span: Option<prost_types::Duration>, what: &str) -> Result<Duration, DecodeError> {
    duration_from_pb(required(span, what)?).ok_or_else(|| malformed(format!("{what} is negative")))
}

/// Returns the private part of the settings, stored in addition to the message.
pub(super) fn settings_private(settings: &Settings) -> Private {
    Private {
        webhook_secrets: secrets(&settings.webhooks),
        workspace: settings.workspace.as_ref().map(content_to_pb),
        ..zero_bounds(settings.budget)
    }
}

/// Converts a change of settings to its message.
#[must_use]
pub fn change_to_pb(change: &SettingsChange) -> pb::SessionUpdated {
    pb::SessionUpdated {
        mode: change.mode.map(|mode| mode.number()),
        limits: change.limits.map(limits_to_pb),
        budget: change.budget.map(budget_to_pb),
        paused: change.paused,
        orchestration: change.orchestration.map(|orchestration| orchestration.number()),
        webhooks: change.webhooks.iter().flatten().map(webhook_to_pb).collect(),
        replace_webhooks: change.webhooks.is_some(),
        edge_management: change.edge_management.map(|edges| edges.number()),
        orchestrators: change.orchestrators.clone().unwrap_or_default(),
        replace_orchestrators: change.orchestrators.is_some(),
    }
}

pub(super) fn stored_change(change: pb::SessionUpdated, private: Private) -> Result<SettingsChange, DecodeError> {
    let budget = match change.budget {
        Some(_) => Some(stored_budget(change.budget, &private)?),
        None => None,
    };
    let webhooks = stored_webhooks(change.webhooks, private.webhook_secrets)?;
    if !(change.replace_webhooks || webhooks.is_empty()) {
        return Err(malformed("webhooks in a change that does not replace webhooks"));
    }
    if !(change.replace_orchestrators || change.orchestrators.is_empty()) {
        return Err(malformed(
            "orchestrators in a change that does not replace orchestrators",
        ));
    }
    Ok(SettingsChange {
        mode: change.mode.map(Mode::from_number).transpose()?,
        limits: change.limits.map(stored_limits).transpose()?,
        budget,
        paused: change.paused,
        orchestration: change.orchestration.map(Orchestration::from_number).transpose()?,
        edge_management: change.edge_management.map(EdgeManagement::from_number).transpose()?,
        orchestrators: change.replace_orchestrators.then_some(change.orchestrators),
        webhooks: change.replace_webhooks.then_some(webhooks),
    })
}

/// Converts a webhook to its message, without its secret.
#[must_use]
pub fn webhook_to_pb(webhook: &Webhook) -> pb::Webhook {
    pb::Webhook {
        url: webhook.url.clone(),
        kinds: webhook.kinds.iter().map(|kind| kind.number()).collect(),
        secret: String::new(),
    }
}

/// Converts a webhook from a request, with its secret.
///
/// # Errors
/// If a kind is unknown.
pub fn webhook_from_pb(webhook: pb::Webhook) -> Result<Webhook, DecodeError> {
    let kinds: Result<Vec<_>, _> = webhook.kinds.into_iter().map(NotificationKind::from_number).collect();
    Ok(Webhook {
        url: webhook.url,
        kinds: kinds?,
        secret: webhook.secret,
    })
}

pub(super) fn secrets(webhooks: &[Webhook]) -> Vec<String> {
    webhooks.iter().map(|webhook| webhook.secret.clone()).collect()
}

fn stored_webhooks(webhooks: Vec<pb::Webhook>, secrets: Vec<String>) -> Result<Vec<Webhook>, DecodeError> {
    if webhooks.len() != secrets.len() {
        return Err(malformed(format!(
            "{} webhooks with {} secrets",
            webhooks.len(),
            secrets.len()
        )));
    }
    webhooks
        .into_iter()
        .zip(secrets)
        .map(|(webhook, secret)| webhook_from_pb(pb::Webhook { secret, ..webhook }))
        .collect()
}
