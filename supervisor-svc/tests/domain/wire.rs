//! Conversions of the state to the API's messages: what a client may see, resolutions, and the errors of rejections.

use std::sync::Arc;

use supervisor_core::{
    content::ContentRef,
    event::{ApprovalKind, CloseCause, ConditionKind, Event, Fence, Spawned, ThreadEvent, ValueOrigin},
    evolve::{evolve, open},
    ids::{ApprovalId, Digest, InputNumber, Sequence},
    principal::Actor,
    rejection::{GuardedVerb, Rejection},
    settings::{EdgeManagement, Sandbox},
    state::session::Session,
    status::StatusKind,
    time::UnixMillis,
};
use supervisor_log::{
    codec::{event_to_pb, parts::time_to_pb},
    store::{Refusal, WriteError},
};
use supervisor_svc::{
    convert::{Redaction, View, approval::approval_to_pb, status::fault, thread as shown},
    engine::Failure,
    registry_client::resolution::Resolution,
};
use tonic::Code;
use tool_policy::Layer;
use troupe_proto::{
    common::v1 as common,
    fault::{metadata_of, reason_of},
    reason::Reason,
    supervisor::v1 as pb,
};
use uuid::Uuid;

use crate::samples::{at, opened, root, session, thread};

fn folded(events: Vec<Event>) -> Session {
    let mut records = events.into_iter().zip(1..).map(|(event, sequence)| at(sequence, event));
    let mut session = open(session(1), &records.next().unwrap()).unwrap();
    records.for_each(|recorded| evolve(&mut session, &recorded));
    session
}

fn spawned_at(number: u128, parent: Option<u128>) -> Event {
    let spawned = Spawned {
        parent: parent.map(thread),
        depth: u32::from(parent.is_some()),
        ..root()
    };
    Event::Thread(thread(number), ThreadEvent::Spawned(Arc::new(spawned)))
}

#[test]
fn previews_can_be_hidden() {
    let input = ContentRef {
        digest: Digest::from_bytes([1; 32]),
        size: 5,
        preview: "hello".to_owned(),
    };
    let queued = ThreadEvent::InputQueued {
        number: InputNumber::new(1),
        input,
        from: Actor::Service,
        steers: false,
        result_repairs: None,
    };
    let event = Redaction::Digests.event(event_to_pb(session(1), &at(1, Event::Thread(thread(2), queued))));
    let Some(pb::event::Kind::InputQueued(queued)) = event.kind else {
        panic!("another kind");
    };
    let input = queued.input.unwrap();
    assert_eq!((input.preview.as_str(), input.size), ("", 5));
}

#[test]
fn arguments_of_tool_calls_can_be_hidden() {
    let subject = "Tool call: exec_command {\"cmd\":\"s3cret\"}";
    let requested = ThreadEvent::ApprovalRequested {
        approval: ApprovalId::from_uuid(Uuid::from_u128(3)),
        kind: ApprovalKind::Tool,
        subject: subject.to_owned(),
        deadline: Some(UnixMillis::new(60_000)),
        edge: None,
        call: None,
    };
    let changed = ThreadEvent::ConditionChanged {
        kind: ConditionKind::AwaitingToolApproval,
        active: true,
        reason: subject.to_owned(),
    };
    let about = |event: &ThreadEvent| Event::Thread(thread(2), event.clone());
    let session = folded(vec![opened(), spawned_at(2, None), about(&requested), about(&changed)]);
    let waiting = session.pending_approvals().next().unwrap();
    let asking = session.thread(thread(2)).unwrap();
    for (redaction, seen) in [
        (Redaction::Everything, subject),
        (Redaction::Previews, subject),
        (Redaction::Digests, "Tool call: exec_command"),
    ] {
        let approval = redaction.approval(approval_to_pb(&session, waiting));
        assert_eq!(approval.subject, seen);
        let view = View {
            redaction,
            ..View::default()
        };
        assert_eq!(shown::thread(&session, asking, view).conditions[0].reason, seen);
        for event in [&requested, &changed] {
            let event = redaction.event(event_to_pb(session.id, &at(3, about(event))));
            let told = match event.kind {
                Some(pb::event::Kind::ApprovalRequested(requested)) => requested.subject,
                Some(pb::event::Kind::ConditionChanged(changed)) => changed.reason,
                other => panic!("{other:?}"),
            };
            assert_eq!(told, seen);
        }
    }
}

#[test]
fn only_admins_see_webhook_urls() {
    let webhook = |url: &str| pb::Webhook {
        url: url.to_owned(),
        ..pb::Webhook::default()
    };
    for (url, seen) in [
        (
            "https://hooks.example.org/T0/B0/s3cret?key=s3cret",
            "https://hooks.example.org/…",
        ),
        (
            "https://s3cret@hooks.example.org:8443",
            "https://hooks.example.org:8443/…",
        ),
    ] {
        let session = pb::Session {
            webhooks: vec![webhook(url)],
            ..pb::Session::default()
        };
        let shown = |redaction: Redaction| redaction.session(session.clone()).webhooks[0].url.clone();
        assert_eq!(shown(Redaction::Everything), url);
        let updated = pb::Event {
            kind: Some(pb::event::Kind::SessionUpdated(pb::SessionUpdated {
                webhooks: vec![webhook(url)],
                ..pb::SessionUpdated::default()
            })),
            ..pb::Event::default()
        };
        for redaction in [Redaction::Previews, Redaction::Digests] {
            assert_eq!(shown(redaction), seen);
            assert!(!format!("{:?}", redaction.event(updated.clone())).contains("s3cret"));
        }
    }
}

#[test]
fn usage_keeps_the_newer_reading() {
    let usage = |output_tokens, turns| pb::Usage {
        output_tokens,
        turns,
        ..pb::Usage::default()
    };
    for (recorded, metered, expected) in [
        (usage(5, 0), usage(9, 0), usage(9, 0)),
        (usage(9, 1), usage(5, 0), usage(9, 1)),
        (usage(5, 1), usage(9, 0), usage(9, 1)),
    ] {
        let mut shown = pb::Thread {
            usage: Some(recorded),
            ..pb::Thread::default()
        };
        let telemetry = pb::Telemetry {
            usage: Some(metered),
            ..pb::Telemetry::default()
        };
        shown::add_telemetry(&mut shown, Some(&telemetry));
        assert_eq!(shown.usage, Some(expected));
    }
}

#[test]
fn fence_of_parent_is_condition_of_child() {
    let fence = Fence {
        reason: "enough".to_owned(),
        cause: CloseCause::Close,
        status_before: StatusKind::PendingInit,
        deadline: UnixMillis::new(60_000),
        close_policy: None,
    };
    let session = folded(vec![
        opened(),
        spawned_at(2, None),
        spawned_at(3, Some(2)),
        Event::Thread(thread(2), ThreadEvent::CloseRequested(fence)),
    ]);
    let child = session.thread(thread(3)).unwrap();
    let mut child = shown::thread(&session, child, View::default());
    assert_eq!(child.conditions.len(), 1);
    assert_eq!(child.conditions[0].kind(), pb::ConditionKind::Closing);
    assert_eq!(child.conditions[0].reason, "enough");
    let set = UnixMillis::new(1_004);
    assert_eq!(child.conditions[0].since, Some(time_to_pb(set)), "its parent's fence");
    assert_eq!(child.parent_thread_id, thread(2).to_string());

    let telemetry = |generation| pb::Telemetry {
        generation,
        activity: "reading".to_owned(),
        ..pb::Telemetry::default()
    };
    shown::add_telemetry(&mut child, Some(&telemetry(9)));
    assert_eq!(child.activity, "", "another attempt's");
    shown::add_telemetry(&mut child, Some(&telemetry(1)));
    assert_eq!(child.activity, "reading");
    assert!(child.usage.is_some());

    let tree = View {
        tree: true,
        redaction: Redaction::Previews,
    };
    let top = session.thread(thread(2)).unwrap();
    assert_eq!(
        shown::thread(&session, top, tree).child_thread_ids,
        [thread(3).to_string()]
    );
    assert!(
        shown::thread(&session, top, View::default())
            .child_thread_ids
            .is_empty()
    );

    let rolled = shown::session(&session).roll_up.unwrap();
    assert_eq!(rolled.threads.len(), 1);
    assert_eq!(
        (rolled.threads[0].kind(), rolled.threads[0].count),
        (pb::StatusKind::PendingInit, 2)
    );

    let quota = shown::quota(&session, session.thread(thread(3)).unwrap());
    assert_eq!(
        (quota.active_threads, quota.open_threads, quota.remaining_depth),
        (1, 2, 1)
    );
    assert_eq!(quota.budget, None);
}

#[test]
fn resolution_is_converted_or_rejected() {
    let resolved = common::ResolvedSpawn {
        agent_type: "worker".to_owned(),
        sandbox: common::Sandbox::ReadOnly.into(),
        tool_policy: Some(common::ToolPolicy {
            layers: vec![common::ToolPolicyLayer {
                origin: "role \"worker\"".to_owned(),
                deny_list: vec!["*".to_owned()],
                ..common::ToolPolicyLayer::default()
            }],
        }),
        origins: [("model".to_owned(), i32::from(common::ValueOrigin::Role))].into(),
        ..common::ResolvedSpawn::default()
    };
    let taken = Resolution::try_from(resolved.clone()).unwrap();
    assert_eq!(taken.sandbox, Sandbox::ReadOnly);
    assert_eq!(taken.edge_management, EdgeManagement::None);
    assert_eq!(*taken.role_layers, [Layer::nothing("role \"worker\"")]);
    assert_eq!(taken.role.origins["model"], ValueOrigin::Role);

    let without_sandbox = common::ResolvedSpawn { sandbox: 0, ..resolved };
    assert!(Resolution::try_from(without_sandbox).is_err());
}

#[test]
fn rejections_map_to_documented_errors() {
    let id = thread(5);
    let by_id = id.to_string();
    for (refusal, code, reason, key, value) in [
        (
            Rejection::OutsideSubtree(GuardedVerb::Close),
            Code::PermissionDenied,
            Reason::OutsideSubtree,
            "verb",
            "close",
        ),
        (
            Rejection::ThreadNotFound("x".to_owned()),
            Code::NotFound,
            Reason::ThreadNotFound,
            "thread_id",
            "x",
        ),
        (
            Rejection::ThreadClosing(id),
            Code::FailedPrecondition,
            Reason::ThreadClosing,
            "thread_id",
            by_id.as_str(),
        ),
        (
            Rejection::DepthLimit { depth: 3, max_depth: 2 },
            Code::FailedPrecondition,
            Reason::DepthLimit,
            "max_depth",
            "2",
        ),
        (
            Rejection::ThreadLimit {
                max_threads: 12,
                active: 11,
            },
            Code::ResourceExhausted,
            Reason::ThreadLimit,
            "active",
            "11",
        ),
        (
            Rejection::AliasInUse {
                alias: "fox".to_owned(),
                by: Some(id),
            },
            Code::AlreadyExists,
            Reason::AliasInUse,
            "alias",
            "fox",
        ),
        (
            Rejection::IllegalTransition {
                thread: id,
                status: StatusKind::Shutdown,
                wanted: "take input",
            },
            Code::FailedPrecondition,
            Reason::IllegalTransition,
            "status",
            "SHUTDOWN",
        ),
        (
            Rejection::RequestIdReused("r".to_owned()),
            Code::AlreadyExists,
            Reason::RequestIdReused,
            "request_id",
            "r",
        ),
        (
            Rejection::AheadOfHead {
                after: Sequence::new(9),
                oldest: Sequence::new(2),
                head: Sequence::new(4),
            },
            Code::OutOfRange,
            Reason::AheadOfHead,
            "head",
            "4",
        ),
    ] {
        let fault = fault(&refusal);
        assert_eq!(
            (fault.code(), fault.reason(), fault.message()),
            (code, reason, refusal.to_string().as_str())
        );
        let metadata = metadata_of(&tonic::Status::from(fault));
        assert_eq!(metadata.get(key).map(String::as_str), Some(value), "{refusal:?}");
    }
}

#[test]
fn store_errors_map_to_unavailable_with_reason() {
    let full = WriteError::Refused(Refusal::DiskFull);
    let interrupted = WriteError::Stopped;
    for (error, reason) in [(full, Reason::StoreUnavailable), (interrupted, Reason::OutcomeUnknown)] {
        let text = error.to_string();
        let status = tonic::Status::from(Failure::from(error));
        assert_eq!(
            (status.code(), reason_of(&status)),
            (Code::Unavailable, Some(reason)),
            "{text}"
        );
        assert_eq!(
            status.message().contains("the disk is full"),
            reason == Reason::StoreUnavailable
        );
    }
}
