//! Snapshot encoding: a session's complete state after an event, as bytes. Decoding yields an equal state.
//! `Session::put` rebuilds the links to children and the indices.
//!
//! Data that several threads share is written once, in tables, and shared again after decoding. Threads are decoded one
//! at a time. Decoding all of them at once would take more time, and more memory than the session itself.
//!
//! A new field of the state must be added here, and [`VERSION`] must be incremented. Otherwise a release that does not
//! know the field would silently lose it. A snapshot of another version is ignored, and the log is folded again.

use std::{collections::HashMap, hash::Hash, iter, sync::Arc};

use bytes::Bytes;
use imbl::{OrdMap, Vector};
use prost::Message as _;
use supervisor_core::{
    event::{ApprovalDecision, ApprovalKind, ConditionKind, Role},
    ids::{Digest, Generation, InputNumber, ReportSequence, RunnerId, Sequence, SessionId, ThreadId, Turn},
    settings::{Sandbox, Webhook},
    state::{
        approval::{Approval, Verdict},
        mailbox::{Body, Letter},
        session::Session,
        thread::{
            FenceSpan, Interrupt, LatestTurn, PendingInput, Repeated, Repetition, ResultRequest, Thread, ThreadResult,
        },
        webhook::WebhookStart,
    },
    status::{Settled, Status, StatusKind},
    time::UnixMillis,
};
use tool_policy::Policy;
use troupe_proto::{
    common::v1 as common,
    store::v1::{self as store, turn_state::Stage},
    supervisor::v1 as pb,
};

use super::{
    enums::WireEnum as _,
    error::{DecodeError, malformed, newer, required},
    event_in, event_out, group,
    parts::{
        bounded, content_to_pb, edge_to_pb, empty_message, handoff_to_pb, id_bytes, non_empty, optional_time,
        result_to_pb, settled_to_pb, shared_text, spent, stored_actor, stored_bounds, stored_call, stored_content,
        stored_edge, stored_handoff, stored_id, stored_private, stored_settled, stored_spent, stored_text, stored_time,
        text_bytes, text_or_empty, time_to_pb, utf8, zero_bounds,
    },
    policy,
    record::{check_version, unreadable, version_of},
    settings::{settings_private, settings_to_pb, stored_settings},
    spawned,
};

/// The version of the format.
pub const VERSION: u32 = 6;

/// Encodes the snapshot of a session.
#[must_use]
pub fn encode_snapshot(session: &Session) -> Bytes {
    let mut tables = Tables::default();
    let threads = session
        .in_spawn_order()
        .map(|thread| thread_to_store(thread, &mut tables).encode_to_vec().into())
        .collect();
    let snapshot = store::Snapshot {
        version: VERSION,
        sequence: session.sequence.get(),
        session: Some(pb::Session {
            session_id: session.id.to_string(),
            paused: session.paused,
            closed: session.closed,
            create_time: Some(time_to_pb(session.created)),
            update_time: Some(time_to_pb(session.updated)),
            ..settings_to_pb(&session.settings)
        }),
        private: non_empty(settings_private(&session.settings)),
        policies: tables.policies.rows,
        roles: tables.roles.rows,
        settled: tables.settled.rows,
        notes: tables.notes.rows,
        threads,
        groups: session.groups().map(|group| group::group_to_store(group)).collect(),
        edges: session.edges.values().map(|edge| edge_to_pb(edge)).collect(),
        approvals: session
            .approvals
            .values()
            .map(|approval| approval_to_store(approval))
            .collect(),
        webhook_starts: session.receivers().map(|(_, start)| start_to_store(start)).collect(),
    };
    snapshot.encode_to_vec().into()
}

/// Decodes the snapshot of `session` as of `sequence`.
///
/// # Errors
/// [`DecodeError::UpgradeRequired`] if a newer release wrote the snapshot. [`DecodeError::Malformed`] if it is invalid
/// in every release, or belongs to another session or sequence.
pub fn decode_snapshot(session: SessionId, sequence: Sequence, bytes: &Bytes) -> Result<Session, DecodeError> {
    check_version(version_of(bytes)?, VERSION, "snapshot")?;
    let snapshot = store::Snapshot::decode(bytes.clone()).map_err(|error| unreadable(&error))?;
    if snapshot.sequence != sequence.get() {
        return Err(malformed(format!("the snapshot is of sequence {}", snapshot.sequence)));
    }
    let stored = required(snapshot.session, "the session")?;
    let of: SessionId = stored_text(&stored.session_id, "the session's id")?;
    if of != session {
        return Err(malformed(format!("the snapshot belongs to session {of}")));
    }
    let created = stored_time(stored.create_time, "the session's creation")?;
    let updated = stored_time(stored.update_time, "the session's last change")?;
    let (paused, closed) = (stored.paused, stored.closed);
    let settings = stored_settings(stored, stored_private(snapshot.private))?;
    let rows = Rows {
        policies: convert_all(snapshot.policies, policy::from_proto)?,
        roles: convert_all(snapshot.roles, |mut role| spawned::stored_role(&mut role).map(Arc::new))?,
        settled: convert_all(snapshot.settled, |state| stored_settlement(state).map(Arc::new))?,
        notes: snapshot.notes.into_iter().map(Into::into).collect(),
    };

    let mut session = Session::new(of, settings, created);
    let threads = snapshot.threads.len();
    for thread in snapshot.threads {
        let state = store::ThreadState::decode(thread).map_err(|error| unreadable(&error))?;
        let thread = stored_thread(state, &rows)?;
        check_position(&session, &thread)?;
        session.sequence = thread.spawn_sequence;
        session.put(thread);
    }
    if session.total() < threads {
        return Err(malformed("a duplicate thread"));
    }
    session.paused = paused;
    session.closed = closed;
    session.updated = updated;
    session.sequence = sequence;
    let starts = snapshot.webhook_starts.iter().map(stored_start).collect();
    session.webhook_starts = starts_of(&session.settings.webhooks, starts)?;
    for edge in snapshot.edges {
        let edge = stored_edge(edge)?;
        session.connect(&edge);
    }
    for group in snapshot.groups {
        session.put_group(group::stored_group(group)?);
    }
    for approval in snapshot.approvals {
        session.remember_approval(stored_approval(approval)?);
    }
    Ok(session)
}

/// Checks a thread's position. Threads are numbered in spawn order and parents precede their children, so that no
/// thread is its own ancestor. `session` contains all earlier threads.
fn check_position(session: &Session, thread: &Thread) -> Result<(), DecodeError> {
    let id = thread.id;
    if thread.spawn_sequence <= session.sequence {
        return Err(malformed(format!("thread {id} is out of spawn order")));
    }
    if let Some(parent) = thread.spawned.parent
        && session.thread(parent).is_none()
    {
        return Err(malformed(format!("thread {id} comes before its parent {parent}")));
    }
    Ok(())
}

/// Tables of values that many threads share, each stored once.
#[derive(Default)]
struct Tables<'s> {
    policies: Table<'s, Policy, common::ToolPolicy>,
    roles: Table<'s, Role, pb::ThreadSpawned>,
    settled: Table<'s, Settled, store::StatusState>,
    notes: Table<'s, str, String>,
}

/// A table of distinct values. `indices` contains the index of each value, and `rows` the messages in the order of the
/// indices.
struct Table<'s, T: ?Sized, M> {
    indices: HashMap<&'s T, u32>,
    rows: Vec<M>,
}

impl<T: ?Sized, M> Default for Table<'_, T, M> {
    fn default() -> Self {
        Self {
            indices: HashMap::new(),
            rows: Vec::new(),
        }
    }
}

impl<'s, T: Eq + Hash + ?Sized, M> Table<'s, T, M> {
    /// Returns the index of a value, counted from 1, so that 0 can mean a missing value.
    fn index_of(&mut self, value: &'s T, to_message: impl FnOnce(&T) -> M) -> u32 {
        let Self { indices, rows } = self;
        *indices.entry(value).or_insert_with(|| {
            rows.push(to_message(value));
            u32::try_from(rows.len()).unwrap_or(u32::MAX)
        })
    }
}

/// The decoded tables of a snapshot.
struct Rows {
    policies: Vec<Policy>,
    roles: Vec<Arc<Role>>,
    settled: Vec<Arc<Settled>>,
    notes: Vec<Arc<str>>,
}

impl Rows {
    fn policy(&self, index: u32) -> Result<Policy, DecodeError> {
        row_at(&self.policies, index, "policy")
    }

    fn role(&self, index: u32) -> Result<Arc<Role>, DecodeError> {
        row_at(&self.roles, index, "role")
    }

    fn note(&self, index: u32) -> Result<Arc<str>, DecodeError> {
        row_at(&self.notes, index, "note")
    }

    fn settled(&self, index: u32) -> Result<Arc<Settled>, DecodeError> {
        row_at(&self.settled, index, "settled status")
    }
}

/// Returns the value at an index, counted from 1. Clones of a value share its memory, so threads share it as before
/// encoding.
fn row_at<T: Clone>(rows: &[T], index: u32, what: &str) -> Result<T, DecodeError> {
    usize::try_from(index)
        .ok()
        .and_then(|index| rows.get(index.checked_sub(1)?))
        .cloned()
        .ok_or_else(|| malformed(format!("{what} {index} is not in the table of {}", rows.len())))
}

fn thread_to_store<'s>(thread: &'s Thread, tables: &mut Tables<'s>) -> store::ThreadState {
    let spawned = &thread.spawned;
    store::ThreadState {
        thread: id_bytes(thread.id),
        parent: spawned.parent.map(id_bytes).unwrap_or_default(),
        spawned: Some(Box::new(spawned::own_to_pb(spawned))),
        role: tables.roles.index_of(&spawned.role, spawned::role_to_pb),
        spawned_private: non_empty(zero_bounds(spawned.budget)),
        spawned_policy: tables.policies.index_of(&spawned.effective, policy::to_proto),
        spawned_grant: tables.policies.index_of(&spawned.grant, policy::to_proto),
        spawned_note: tables.notes.index_of(&spawned.note, str::to_owned),
        spawn_sequence: thread.spawn_sequence.get(),
        created: Some(thread.created.get()),
        status: Some(status_to_store(&thread.status, tables)),
        since: Some(thread.since.get()),
        status_sequence: thread.status_sequence.get(),
        generation: thread.generation.get(),
        note_place: tables.notes.index_of(&thread.note, str::to_owned),
        policy: tables.policies.index_of(&thread.effective, policy::to_proto),
        grant: tables.policies.index_of(&thread.grant, policy::to_proto),
        sandbox: thread.sandbox.number(),
        budget: bounded(thread.budget).map(Box::new),
        budget_private: non_empty(zero_bounds(thread.budget)),
        fence: thread
            .fence
            .as_ref()
            .map(|fence| Box::new(event_out::close_requested(fence))),
        runner: thread.runner.as_ref().map(|runner| text_bytes(runner.as_str())),
        turn: turn_to_store(&thread.turn),
        pending_inputs: inputs_to_store(&thread.pending_inputs),
        last_input: thread.last_input.get(),
        interrupt: thread.interrupt.as_ref().map(|interrupt| interrupt.turn.get()),
        interrupt_reason: thread
            .interrupt
            .as_ref()
            .map(|interrupt| interrupt.reason.clone())
            .unwrap_or_default(),
        last_report: thread.last_report.get(),
        conditions: thread
            .conditions
            .iter()
            .map(|(kind, (since, reason))| pb::Condition {
                kind: kind.number(),
                since: Some(time_to_pb(*since)),
                reason: reason.clone(),
            })
            .collect(),
        usage: spent(thread.usage),
        earlier_usage: spent(thread.earlier_usage).map(Box::new),
        subtree_usage: spent(thread.subtree_usage),
        mail: thread
            .mail
            .letters()
            .map(|letter| letter_to_store(letter, tables))
            .collect(),
        mail_shown: thread.mail_shown.get(),
        repeated_output: thread.repeated.output.map(repetition_to_store).map(Box::new),
        repeated_diff: thread.repeated.diff.map(repetition_to_store).map(Box::new),
        repeats_turn: thread.repeats_turn,
        restarts: thread.restarts.iter().copied().map(time_to_pb).collect(),
        traceparent: thread.traceparent.as_deref().map(text_bytes),
        updated: unless_equal(thread.updated, thread.since).map(UnixMillis::get),
        sequence: unless_equal(thread.sequence, thread.status_sequence).map_or(0, Sequence::get),
        dispatched_generation: thread.dispatched_generation.get(),
        continues: thread.continues,
        item_has_ended: thread.item_has_ended,
        result_request: thread.result_request.as_ref().map(|request| store::ResultRequest {
            input: Some(content_to_pb(&request.input)),
            repairs_left: request.repairs_left,
        }),
        result: thread.result.as_ref().map(|result| result_to_pb(result)),
        metered: unless_equal(thread.metered, thread.since).map(UnixMillis::get),
        mail_acknowledged: thread.mail_acknowledged.get(),
        woken_up_to: thread.woken_up_to.get(),
        fenced: thread
            .fenced
            .iter()
            .map(|span| store::FenceSpan {
                from: span.from.get(),
                until: span.until.map(Sequence::get),
                time: Some(time_to_pb(span.since)),
            })
            .collect(),
    }
}

fn stored_thread(state: store::ThreadState, rows: &Rows) -> Result<Thread, DecodeError> {
    let spawned = required(state.spawned, "the spawn")?;
    let fields = spawned::SnapshotFields {
        parent: stored_parent(&state.parent)?,
        budget: stored_bounds(spawned.budget, &stored_private(state.spawned_private))?,
        role: rows.role(state.role)?,
        note: rows.note(state.spawned_note)?,
        effective: rows.policy(state.spawned_policy)?,
        grant: rows.policy(state.spawned_grant)?,
    };
    let spawned = spawned::stored_own(spawned, fields)?;
    let since = stored_moment(state.since, "the start time of a status")?;
    let status_sequence = Sequence::new(state.status_sequence);
    let conditions: Vec<_> = convert_all(state.conditions, |condition| {
        let since = stored_time(condition.since, "the start time of a condition")?;
        Ok((ConditionKind::from_number(condition.kind)?, (since, condition.reason)))
    })?;
    let mail: Vec<Letter> = convert_all(state.mail, |letter| stored_letter(letter, rows))?;
    if !mail.is_sorted_by(|earlier, later| earlier.sequence < later.sequence) {
        return Err(malformed("mail that is not in the order of its numbers"));
    }
    Ok(Thread {
        id: stored_id(&state.thread)?,
        spawned: Arc::new(spawned),
        spawn_sequence: Sequence::new(state.spawn_sequence),
        created: stored_moment(state.created, "a thread's creation")?,
        status: stored_status(required(state.status, "the status")?, rows)?,
        since,
        status_sequence,
        generation: Generation::new(state.generation),
        note: rows.note(state.note_place)?,
        effective: rows.policy(state.policy)?,
        grant: rows.policy(state.grant)?,
        sandbox: Sandbox::from_number(state.sandbox)?,
        budget: stored_bounds(
            state.budget.map(|budget| *budget),
            &stored_private(state.budget_private),
        )?,
        children: Vector::new(),
        open_children: 0,
        fence: state
            .fence
            .map(|fence| event_in::fence(*fence))
            .transpose()?
            .map(Arc::new),
        runner: stored_runner(state.runner)?,
        turn: stored_turn(state.turn)?,
        pending_inputs: stored_inputs(state.pending_inputs)?,
        last_input: InputNumber::new(state.last_input),
        interrupt: state.interrupt.map(|turn| Interrupt {
            turn: Turn::new(turn),
            reason: state.interrupt_reason,
        }),
        last_report: ReportSequence::new(state.last_report),
        conditions: conditions.into_iter().collect(),
        usage: stored_spent(state.usage)?,
        earlier_usage: stored_spent(state.earlier_usage.map(|usage| *usage))?,
        subtree_usage: stored_spent(state.subtree_usage)?,
        mail: mail.into_iter().collect(),
        mail_shown: Sequence::new(state.mail_shown),
        repeated: Repeated {
            output: state.repeated_output.as_deref().map(stored_repetition).transpose()?,
            diff: state.repeated_diff.as_deref().map(stored_repetition).transpose()?,
        },
        repeats_turn: state.repeats_turn,
        restarts: convert_all(state.restarts, |time| stored_time(Some(time), "a restart"))?,
        traceparent: shared_text(state.traceparent, "a trace context")?,
        updated: state.updated.map_or(since, UnixMillis::new),
        sequence: match state.sequence {
            0 => status_sequence,
            sequence => Sequence::new(sequence),
        },
        dispatched_generation: Generation::new(state.dispatched_generation),
        continues: state.continues,
        item_has_ended: state.item_has_ended,
        result_request: state.result_request.map(stored_request).transpose()?,
        result: state.result.map(stored_result).transpose()?,
        metered: state.metered.map_or(since, UnixMillis::new),
        mail_acknowledged: Sequence::new(state.mail_acknowledged),
        woken_up_to: Sequence::new(state.woken_up_to),
        fenced: convert_all(state.fenced, stored_span)?,
    })
}

fn status_to_store<'s>(status: &'s Status, tables: &mut Tables<'s>) -> store::StatusState {
    let plain = pb::Status {
        kind: status.kind().number(),
        ..pb::Status::default()
    };
    match status {
        Status::Queued | Status::AwaitingApproval | Status::PendingInit | Status::Running => store::StatusState {
            status: Some(Box::new(plain)),
            ..store::StatusState::default()
        },
        Status::Settled(settled) => settled_to_store(settled, tables),
        Status::Shutdown { reason, before } => store::StatusState {
            status: Some(Box::new(pb::Status {
                reason: reason.clone(),
                ..plain
            })),
            before: before.as_ref().map(|before| Box::new(settled_to_store(before, tables))),
            ..store::StatusState::default()
        },
    }
}

fn settled_to_store<'s>(settled: &'s Settled, tables: &mut Tables<'s>) -> store::StatusState {
    store::StatusState {
        settled: tables.settled.index_of(settled, settlement_to_store),
        ..store::StatusState::default()
    }
}

fn stored_status(state: store::StatusState, rows: &Rows) -> Result<Status, DecodeError> {
    if state.settled != 0 {
        return rows.settled(state.settled).map(Status::Settled);
    }
    let status = required(state.status.as_ref(), "the status")?;
    Ok(match StatusKind::from_number(status.kind)? {
        StatusKind::Queued => Status::Queued,
        StatusKind::AwaitingApproval => Status::AwaitingApproval,
        StatusKind::PendingInit => Status::PendingInit,
        StatusKind::Running => Status::Running,
        StatusKind::Completed | StatusKind::Errored | StatusKind::Interrupted => {
            return Err(malformed("a settled status without its outcome"));
        }
        StatusKind::Shutdown => Status::Shutdown {
            reason: status.reason.clone(),
            before: state.before.map(|before| rows.settled(before.settled)).transpose()?,
        },
    })
}

/// Encodes the table row of a settled status.
fn settlement_to_store(settled: &Settled) -> store::StatusState {
    store::StatusState {
        status: Some(Box::new(settled_to_pb(settled, None))),
        private: non_empty(empty_message(settled)),
        ..store::StatusState::default()
    }
}

fn stored_settlement(state: store::StatusState) -> Result<Settled, DecodeError> {
    let status = required(state.status, "the outcome of a thread")?;
    let kind = StatusKind::from_number(status.kind)?;
    stored_settled(kind, *status, &stored_private(state.private))
}

fn stored_runner(name: Option<Bytes>) -> Result<Option<RunnerId>, DecodeError> {
    name.map(|name| utf8(&name, "a runner").map(RunnerId::new)).transpose()
}

fn turn_to_store(turn: &LatestTurn) -> Option<store::TurnState> {
    let stage = match turn {
        LatestTurn::None => return None,
        LatestTurn::Dispatched { .. } => Stage::Dispatched,
        LatestTurn::Running { .. } => Stage::Running,
        LatestTurn::Ended { .. } => Stage::Ended,
    };
    Some(store::TurnState {
        turn: turn.number().get(),
        stage: stage.into(),
        inputs: inputs_to_store(&turn.inputs()),
    })
}

fn stored_turn(state: Option<store::TurnState>) -> Result<LatestTurn, DecodeError> {
    let Some(state) = state else {
        return Ok(LatestTurn::None);
    };
    let turn = Turn::new(state.turn);
    let inputs = stored_inputs(state.inputs)?;
    match Stage::try_from(state.stage) {
        Ok(Stage::Dispatched) => Ok(LatestTurn::Dispatched { turn, inputs }),
        Ok(Stage::Running) => Ok(LatestTurn::Running { turn, inputs }),
        Ok(Stage::Ended) => Ok(LatestTurn::Ended { turn }),
        Ok(Stage::Unspecified) => Err(malformed("a turn without a stage")),
        Err(_) => Err(newer(format!("stage {} of turns", state.stage))),
    }
}

fn inputs_to_store(inputs: &Vector<Arc<PendingInput>>) -> Vec<store::PendingInput> {
    inputs
        .iter()
        .map(|input| store::PendingInput {
            number: input.number.get(),
            content: Some(content_to_pb(&input.content)),
            steers: input.steers,
            result_repairs: input.result_repairs,
        })
        .collect()
}

fn stored_inputs(inputs: Vec<store::PendingInput>) -> Result<Vector<Arc<PendingInput>>, DecodeError> {
    convert_all(inputs, |input| {
        Ok(Arc::new(PendingInput {
            number: InputNumber::new(input.number),
            content: stored_content(input.content, "an input's content")?,
            steers: input.steers,
            result_repairs: input.result_repairs,
        }))
    })
}

fn stored_request(request: store::ResultRequest) -> Result<Arc<ResultRequest>, DecodeError> {
    Ok(Arc::new(ResultRequest {
        input: stored_content(request.input, "an input with a result schema")?,
        repairs_left: request.repairs_left,
    }))
}

fn stored_result(result: pb::ThreadResult) -> Result<Arc<ThreadResult>, DecodeError> {
    Ok(Arc::new(ThreadResult {
        turn: Turn::new(result.turn),
        content: stored_content(result.content, "a result")?,
    }))
}

fn letter_to_store<'s>(letter: &'s Letter, tables: &mut Tables<'s>) -> store::Letter {
    let body = match &letter.body {
        Body::Handoff(handoff) => store::letter::Body::Handoff(Box::new(handoff_to_pb(handoff))),
        Body::GroupEnded {
            group,
            outcome,
            reason,
            table,
        } => store::letter::Body::GroupEnded(pb::GroupEnded {
            group_id: group.to_string(),
            outcome: group::outcome_to_pb(*outcome).into(),
            reason: reason.clone(),
            artifact_id: table.to_string(),
            table: None,
        }),
        Body::Settled { child, status } => store::letter::Body::Settled(store::Settlement {
            child: id_bytes(*child),
            status: Some(status_to_store(status, tables)),
        }),
    };
    store::Letter {
        sequence: letter.sequence.get(),
        recorded: Some(letter.time.get()),
        body: Some(body),
    }
}

fn stored_letter(letter: store::Letter, rows: &Rows) -> Result<Letter, DecodeError> {
    let body = match letter.body.ok_or_else(|| newer("the body of a letter"))? {
        store::letter::Body::Handoff(handoff) => Body::Handoff(Arc::new(stored_handoff(*handoff)?)),
        store::letter::Body::GroupEnded(ended) => Body::GroupEnded {
            group: stored_text(&ended.group_id, "a group's id")?,
            outcome: group::stored_outcome(ended.outcome)?,
            reason: ended.reason,
            table: stored_text(&ended.artifact_id, "an artifact's id")?,
        },
        store::letter::Body::Settled(settlement) => Body::Settled {
            child: stored_id(&settlement.child)?,
            status: stored_status(required(settlement.status, "a child's status")?, rows)?,
        },
    };
    Ok(Letter {
        sequence: Sequence::new(letter.sequence),
        time: stored_moment(letter.recorded, "a letter's time")?,
        body,
    })
}

fn repetition_to_store(row: Repetition) -> store::Repetition {
    store::Repetition {
        sha256: Bytes::copy_from_slice(row.digest.as_bytes()),
        times: row.times,
    }
}

fn stored_repetition(row: &store::Repetition) -> Result<Repetition, DecodeError> {
    let digest = <[u8; 32]>::try_from(&row.sha256[..]).map_err(|_| malformed("the digest of a repetition"))?;
    Ok(Repetition {
        digest: Digest::from_bytes(digest),
        times: row.times,
    })
}

fn approval_to_store(approval: &Approval) -> store::ApprovalState {
    let approval_id = approval.id.to_string();
    store::ApprovalState {
        requested: Some(pb::ApprovalRequested {
            approval_id: approval_id.clone(),
            kind: approval.kind.number(),
            subject: approval.subject.clone(),
            deadline: approval.deadline.map(time_to_pb),
            edge: approval.edge.as_ref().map(edge_to_pb),
            call_sha256: text_or_empty(approval.call.as_ref().map(|call| call.digest)),
            content: approval.call.as_ref().map(|call| content_to_pb(&call.content)),
        }),
        thread: id_bytes(approval.thread),
        sequence: approval.sequence.get(),
        request_time: Some(time_to_pb(approval.requested)),
        resolved: approval.verdict.as_ref().map(|verdict| pb::ApprovalResolved {
            approval_id,
            decision: verdict.decision.number(),
            by: verdict.by.to_string(),
            reason: verdict.reason.clone(),
        }),
    }
}

fn stored_approval(state: store::ApprovalState) -> Result<Approval, DecodeError> {
    let requested = required(state.requested, "the request of an approval")?;
    let verdict = state.resolved.map(|resolved| {
        Ok::<_, DecodeError>(Verdict {
            decision: ApprovalDecision::from_number(resolved.decision)?,
            by: stored_actor(&resolved.by)?,
            reason: resolved.reason,
        })
    });
    Ok(Approval {
        id: stored_text(&requested.approval_id, "an approval's id")?,
        thread: stored_id(&state.thread)?,
        kind: ApprovalKind::from_number(requested.kind)?,
        subject: requested.subject,
        sequence: Sequence::new(state.sequence),
        requested: stored_time(state.request_time, "an approval's time")?,
        deadline: optional_time(requested.deadline, "an approval's deadline")?,
        edge: requested.edge.map(stored_edge).transpose()?,
        call: stored_call(&requested.call_sha256, requested.content)?,
        verdict: verdict.transpose()?,
    })
}

fn stored_span(span: store::FenceSpan) -> Result<FenceSpan, DecodeError> {
    Ok(FenceSpan {
        from: Sequence::new(span.from),
        since: stored_time(span.time, "the start time of a fence")?,
        until: span.until.map(Sequence::new),
    })
}

fn start_to_store(start: WebhookStart) -> store::WebhookStart {
    store::WebhookStart {
        after: start.after.get(),
        given: start.given.get(),
    }
}

fn stored_start(start: &store::WebhookStart) -> WebhookStart {
    WebhookStart {
        after: Sequence::new(start.after),
        given: Sequence::new(start.given),
    }
}

/// Returns the delivery starts of the webhooks by their URLs.
fn starts_of(webhooks: &[Webhook], starts: Vec<WebhookStart>) -> Result<OrdMap<String, WebhookStart>, DecodeError> {
    if webhooks.len() != starts.len() {
        let (webhooks, starts) = (webhooks.len(), starts.len());
        return Err(malformed(format!("{webhooks} webhooks with {starts} starts")));
    }
    Ok(webhooks.iter().map(|webhook| webhook.url.clone()).zip(starts).collect())
}

fn stored_moment(millis: Option<u64>, what: &str) -> Result<UnixMillis, DecodeError> {
    required(millis, what).map(UnixMillis::new)
}

/// Returns `value`, or `None` if it equals `written`, which the snapshot contains in any case.
fn unless_equal<T: PartialEq>(value: T, written: T) -> Option<T> {
    (value != written).then_some(value)
}

fn stored_parent(bytes: &[u8]) -> Result<Option<ThreadId>, DecodeError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    stored_id(bytes).map(Some)
}

/// Converts all messages. Returns the first error.
fn convert_all<M, T, C: FromIterator<T>>(
    messages: Vec<M>,
    convert: impl FnMut(M) -> Result<T, DecodeError>,
) -> Result<C, DecodeError> {
    // The common case: there are no messages of this kind.
    if messages.is_empty() {
        return Ok(iter::empty().collect());
    }
    messages.into_iter().map(convert).collect()
}
