//! Notifications: streams with the policy, the focus and the missed notifications of their client; and webhooks.

use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::json;
use sha2::Sha256;
use supervisor_svc::WebhookLimits;
use tonic::{Code, Status, Streaming};
use troupe_proto::{
    reason::Reason,
    supervisor::v1::{
        CreateSessionRequest, Notification,
        NotificationKind::{self, AgentTurnComplete, RunnerLost, SubAgentComplete},
        NotificationPolicy, SetActiveThreadRequest, StatusKind, TurnOutcome, WatchNotificationsRequest,
        WatchNotificationsResponse, Webhook,
    },
};
use troupe_tests::{
    UNKNOWN,
    client::Supervisor,
    pair::{Pair, VIEWER},
    receiver::{Received, Receiver},
    refusal::{invalid, refused},
    runner::Runner,
    tree::Tree,
    within,
};

use crate::{attached, soon_compacted, started};

const SECRET: &str = "a secret of 19 byte";

/// An open stream.
struct Notes(Streaming<WatchNotificationsResponse>);

impl Notes {
    async fn open(mut client: Supervisor, request: WatchNotificationsRequest) -> Result<Self, Status> {
        let answer = within("a stream", client.watch_notifications(request)).await?;
        Ok(Self(answer.into_inner()))
    }

    async fn next(&mut self) -> Notification {
        let message = within("a notification", self.0.message()).await.unwrap();
        message.expect("the stream continues").notification.unwrap()
    }

    /// Returns the thread and the kinds of the next notification.
    async fn about(&mut self) -> (String, Vec<NotificationKind>) {
        let next = self.next().await;
        let kinds = next.kinds().collect();
        (next.thread_id, kinds)
    }
}

fn client(tree: &Tree, name: &str) -> WatchNotificationsRequest {
    WatchNotificationsRequest {
        session_id: tree.session.clone(),
        client_id: name.to_owned(),
        ..WatchNotificationsRequest::default()
    }
}

fn everything(tree: &Tree, name: &str) -> WatchNotificationsRequest {
    WatchNotificationsRequest {
        policy: Some(NotificationPolicy {
            all: true,
            ..NotificationPolicy::default()
        }),
        ..client(tree, name)
    }
}

async fn look_at(tree: &Tree, name: &str, thread: &str) -> Result<(), Status> {
    let request = SetActiveThreadRequest {
        session_id: tree.session.clone(),
        client_id: name.to_owned(),
        thread_id: thread.to_owned(),
    };
    within("an answer", tree.client().set_active_thread(request)).await?;
    Ok(())
}

// ---- streams ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_is_one_notification_with_all_kinds() {
    let (pair, tree, mut runner) = attached().await;
    let mut admin = Notes::open(tree.client(), everything(&tree, "desk")).await.unwrap();
    let mut viewer = Notes::open(pair.with_token(VIEWER), everything(&tree, "wall"))
        .await
        .unwrap();
    let first = tree.run_worker(&mut runner).await;
    let second = tree.run_worker(&mut runner).await;
    runner.complete(&first, "all\u{7}\ngood").await;
    runner.end(&second, TurnOutcome::Errored, "it broke").await;

    let told = admin.next().await;
    assert_eq!((&told.session_id, &told.thread_id), (&tree.session, &first.thread));
    assert_eq!(told.kinds().collect::<Vec<_>>(), [AgentTurnComplete, SubAgentComplete]);
    assert_eq!(told.text, "agent worker (worker) completed: all good");
    let log = tree.log().await;
    let event = log.iter().find(|event| event.sequence == told.sequence).unwrap();
    assert_eq!((&event.thread_id, event.time), (&first.thread, told.time));
    let next = admin.next().await;
    assert_eq!(next.thread_id, second.thread, "the first notification is not repeated");
    assert_eq!(next.kinds().collect::<Vec<_>>(), [SubAgentComplete]);
    assert_eq!(next.text, "agent worker (worker) failed: it broke");

    assert_eq!(viewer.next().await.text, "agent worker (worker) completed");
    assert_eq!(viewer.next().await.text, "agent worker (worker) failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn returning_runner_without_thread_notifies_loss() {
    let (pair, tree, mut runner) = attached().await;
    let mut notes = Notes::open(tree.client(), everything(&tree, "desk")).await.unwrap();
    let lost = tree.run_worker(&mut runner).await.thread;
    let _runner = runner.come_back(&pair, &[]).await;

    let told = notes.next().await;
    assert_eq!(
        (&told.thread_id, told.kinds().collect::<Vec<_>>()),
        (&lost, vec![RunnerLost])
    );
    let why = "agent worker (worker) lost its runner: runner r came back without the agent";
    assert_eq!(told.text, why);
    assert_eq!(notes.about().await, (lost.clone(), vec![SubAgentComplete]), "once");
    assert!(tree.thread(&lost).await.conditions.is_empty(), "the thread is settled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missed_notifications_are_delivered_after_restart() {
    let (mut pair, tree, mut runner) = attached().await;
    // Before any watch exists: no client is notified.
    tree.complete_worker(&mut runner).await;
    let mut notes = Notes::open(tree.client(), everything(&tree, "desk")).await.unwrap();
    let told = tree.complete_worker(&mut runner).await.thread;
    assert_eq!(notes.about().await.0, told);
    let looked_at = tree.run_worker(&mut runner).await;
    look_at(&tree, "desk", &looked_at.thread).await.unwrap();

    pair.restart().await;
    let status = within("the end of the stream", async {
        match notes.0.message().await {
            Ok(Some(again)) => panic!("a notification was sent twice on one stream: {again:?}"),
            Ok(None) => panic!("the stream ended without an error"),
            Err(status) => status,
        }
    })
    .await;
    refused::<()>(Err(status), Code::Unavailable, Reason::Draining, "is shutting down");

    let tree = tree.by(pair.operator());
    let mut runner = runner.come_back(&pair, std::slice::from_ref(&looked_at)).await;
    runner.complete(&looked_at, "done").await;
    let missed = tree.complete_worker(&mut runner).await.thread;
    // Policy, focus and position are unchanged.
    let mut notes = Notes::open(tree.client(), client(&tree, "desk")).await.unwrap();
    assert_eq!(notes.about().await, (looked_at.thread, vec![SubAgentComplete]));
    assert_eq!(notes.about().await, (missed, vec![AgentTurnComplete, SubAgentComplete]));

    // A new client begins with the next event.
    let mut other = Notes::open(tree.client(), everything(&tree, "wall")).await.unwrap();
    let next = tree.complete_worker(&mut runner).await.thread;
    assert_eq!(other.about().await.0, next);
    assert_eq!(notes.about().await.0, next);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_may_choose_its_resume_position() {
    let (_pair, tree, mut runner) = attached().await;
    let first = tree.complete_worker(&mut runner).await.thread;
    let seen = tree.head().await;
    let second = tree.complete_worker(&mut runner).await.thread;
    let head = tree.head().await;
    for (after, focus, expected) in [
        (0, first.as_str(), vec![&second]),
        (0, "", vec![&first, &second]),
        (seen, "", vec![&second]),
    ] {
        let request = WatchNotificationsRequest {
            after_sequence: Some(after),
            active_thread_id: focus.to_owned(),
            ..client(&tree, "desk")
        };
        let mut notes = Notes::open(tree.client(), request).await.unwrap();
        for thread in expected {
            assert_eq!(&notes.about().await.0, thread, "after {after}");
        }
        look_at(&tree, "desk", "").await.unwrap();
    }
    let ahead = WatchNotificationsRequest {
        after_sequence: Some(head + 1),
        ..client(&tree, "desk")
    };
    let answer = Notes::open(tree.client(), ahead).await.map(drop);
    let text = "is ahead of the newest event";
    refused(answer, Code::OutOfRange, Reason::AheadOfHead, text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_notification_requests_are_rejected() {
    let (_pair, tree) = started().await;
    let invalid = (Code::InvalidArgument, Reason::InvalidArgument);
    let contradiction = NotificationPolicy {
        off: true,
        all: true,
        ..NotificationPolicy::default()
    };
    let nonsense = NotificationPolicy {
        kinds: vec![0],
        ..NotificationPolicy::default()
    };
    let with = |policy| WatchNotificationsRequest {
        policy: Some(policy),
        ..client(&tree, "desk")
    };
    for (request, (code, reason), text) in [
        (WatchNotificationsRequest::default(), invalid, "session_id is required"),
        (client(&tree, ""), invalid, "client_id is required"),
        (client(&tree, &"x".repeat(129)), invalid, "client_id has 129 bytes"),
        (with(contradiction), invalid, "give one of off, all and kinds"),
        (with(nonsense), invalid, "NotificationKind is missing"),
        (
            WatchNotificationsRequest {
                active_thread_id: UNKNOWN.to_owned(),
                ..client(&tree, "desk")
            },
            (Code::NotFound, Reason::ThreadNotFound),
            "not found",
        ),
    ] {
        let opened = Notes::open(tree.client(), request).await.map(drop);
        refused(opened, code, reason, text);
    }
    let answer = look_at(&tree, "desk", UNKNOWN).await;
    refused(answer, Code::NotFound, Reason::ThreadNotFound, "not found");
}

// ---- webhooks ----

/// Starts a pair whose logs are compacted soon, and whose webhooks may use addresses of this machine and are retried
/// soon.
async fn pair_with_webhooks() -> Pair {
    Pair::with(|config| {
        config.upkeep = soon_compacted();
        config.webhooks = WebhookLimits {
            allow_private: true,
            first_retry: Duration::from_millis(10),
            ..WebhookLimits::default()
        };
    })
    .await
}

fn webhook(url: &str, kinds: &[NotificationKind]) -> Webhook {
    Webhook {
        url: url.to_owned(),
        kinds: kinds.iter().map(|kind| (*kind).into()).collect(),
        secret: SECRET.to_owned(),
    }
}

fn session_with(webhooks: Vec<Webhook>) -> CreateSessionRequest {
    CreateSessionRequest {
        webhooks,
        ..CreateSessionRequest::default()
    }
}

/// Checks the signature as a receiver does.
#[track_caller]
fn assert_genuine(received: &Received) {
    let header = received.header("troupe-signature");
    let (time, signature) = header
        .strip_prefix("t=")
        .and_then(|rest| rest.split_once(",v1="))
        .unwrap();
    let mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes())
        .unwrap()
        .chain_update(time.as_bytes())
        .chain_update(b".")
        .chain_update(&received.body);
    let expected: String = mac
        .finalize()
        .into_bytes()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(signature, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhook_deliveries_are_ordered_and_retried() {
    let pair = pair_with_webhooks().await;
    let receiver = Receiver::start().await;
    let tree = pair.tree_with(session_with(vec![webhook(&receiver.url(), &[])])).await;
    let mut runner = Runner::attach(&pair, "r").await;
    let first = tree.complete_worker(&mut runner).await.thread;
    let second = tree.complete_worker(&mut runner).await.thread;

    let refused = receiver.next(503).await;
    let redirected = receiver.next(302).await;
    let accepted = receiver.next(204).await;
    for attempt in [&refused, &redirected, &accepted] {
        assert_genuine(attempt);
        assert_eq!(attempt.line, "POST /hook HTTP/1.1");
        assert_eq!(attempt.header("content-type"), "application/json");
        assert_eq!(attempt.body, refused.body, "every attempt is the same delivery");
        assert_eq!(attempt.header("troupe-delivery"), refused.header("troupe-delivery"));
    }
    let log = tree.log().await;
    let sequence = accepted.json()["sequence"].as_u64().unwrap();
    let event = log.iter().find(|event| event.sequence == sequence).unwrap();
    let id = format!("{}-{sequence}", tree.session);
    assert_eq!(accepted.header("troupe-delivery"), id);
    assert_eq!(
        accepted.json(),
        json!({
            "id": id,
            "session_id": tree.session,
            "thread_id": first,
            "sequence": sequence,
            "kinds": ["agent-turn-complete", "sub-agent-complete"],
            "text": "agent worker (worker) completed: done",
            "time": event.time.unwrap().to_string(),
        })
    );
    assert_eq!(receiver.next(200).await.json()["thread_id"], second.as_str());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhook_receives_only_requested_kinds() {
    let pair = pair_with_webhooks().await;
    let receiver = Receiver::start().await;
    let wanted = webhook(&receiver.url(), &[AgentTurnComplete]);
    let tree = pair.tree_with(session_with(vec![wanted])).await;
    let shown = &tree.now().await.webhooks;
    assert_eq!(
        (shown.len(), shown[0].secret.as_str()),
        (1, ""),
        "the secret is not returned"
    );
    let mut runner = Runner::attach(&pair, "r").await;
    let failing = tree.run_worker(&mut runner).await;
    runner.end(&failing, TurnOutcome::Errored, "no").await;
    let good = tree.complete_worker(&mut runner).await.thread;
    assert_eq!(receiver.next(200).await.json()["thread_id"], good.as_str());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_webhook_delivery_is_retried_after_restart() {
    let mut pair = pair_with_webhooks().await;
    let receiver = Receiver::start().await;
    let tree = pair.tree_with(session_with(vec![webhook(&receiver.url(), &[])])).await;
    let mut runner = Runner::attach(&pair, "r").await;
    let first = tree.complete_worker(&mut runner).await.thread;
    let second = tree.complete_worker(&mut runner).await.thread;
    assert_eq!(receiver.next(200).await.json()["thread_id"], first.as_str());
    let refused = receiver.next(500).await;
    assert_eq!(refused.json()["thread_id"], second.as_str());

    // The session has no other work, and no client calls it.
    pair.restart().await;
    // At most one of two attempts was made before the restart.
    for status in [500, 200] {
        assert_eq!(receiver.next(status).await.body, refused.body);
    }
    let tree = tree.by(pair.operator());
    assert_eq!(tree.status(&second).await, StatusKind::Completed);
}

async fn replace_webhooks(tree: &Tree, webhooks: Vec<Webhook>) {
    tree.update(|session| {
        session.webhooks = webhooks;
        session.replace_webhooks = true;
    })
    .await;
}

/// Accepts the next delivery and returns its thread.
async fn accept_delivery(receiver: &Receiver) -> String {
    let delivery = receiver.next(200).await.json();
    delivery["thread_id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kept_webhook_continues_and_readded_webhook_restarts() {
    let pair = pair_with_webhooks().await;
    let (stays, leaves) = (Receiver::start().await, Receiver::start().await);
    let [staying, leaving] = [&stays, &leaves].map(|receiver| webhook(&receiver.url(), &[]));
    let tree = pair.tree_with(session_with(vec![staying.clone()])).await;
    let mut runner = Runner::attach(&pair, "r").await;
    let first = tree.complete_worker(&mut runner).await.thread;
    // The first webhook has accepted no delivery yet when the second webhook is added.
    assert_eq!(stays.next(503).await.json()["thread_id"], first.as_str());
    replace_webhooks(&tree, vec![leaving.clone(), staying.clone()]).await;
    assert_eq!(accept_delivery(&stays).await, first);
    let second = tree.complete_worker(&mut runner).await.thread;
    assert_eq!(accept_delivery(&stays).await, second, "each notification is sent once");
    assert_eq!(
        accept_delivery(&leaves).await,
        second,
        "the webhook starts with later notifications"
    );

    replace_webhooks(&tree, vec![staying.clone()]).await;
    let third = tree.complete_worker(&mut runner).await.thread;
    assert_eq!(accept_delivery(&stays).await, third);
    replace_webhooks(&tree, vec![staying, leaving]).await;
    let fourth = tree.complete_worker(&mut runner).await.thread;
    assert_eq!(
        accept_delivery(&leaves).await,
        fourth,
        "notifications from the time without the webhook are not sent to it"
    );
    assert_eq!(accept_delivery(&stays).await, fourth);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_and_webhooks_continue_after_compaction() {
    let mut pair = pair_with_webhooks().await;
    let receiver = Receiver::start().await;
    let tree = pair.tree_with(session_with(vec![webhook(&receiver.url(), &[])])).await;
    drop(Notes::open(tree.client(), client(&tree, "desk")).await.unwrap());
    tree.compact_beyond(tree.head().await).await;
    let tree = tree.after_restart(&mut pair).await;
    let mut notes = Notes::open(tree.client(), client(&tree, "desk")).await.unwrap();
    let mut runner = Runner::attach(&pair, "r").await;
    let thread = tree.complete_worker(&mut runner).await.thread;
    assert_eq!(notes.about().await.0, thread);
    assert_eq!(receiver.next(200).await.json()["thread_id"], thread.as_str());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forbidden_webhooks_are_rejected() {
    let pair = Pair::start().await;
    let public = "https://example.com/hook";
    let unknown = Webhook {
        kinds: vec![99],
        ..webhook(public, &[])
    };
    for (webhooks, text) in [
        (
            vec![webhook("http://127.0.0.1:9/", &[])],
            "it leads to a private, loopback or link-local address",
        ),
        (
            vec![webhook("http://169.254.169.254/latest", &[])],
            "--webhook-allow-private",
        ),
        (vec![webhook("http://localhost/", &[])], "--webhook-allow-private"),
        (vec![webhook("example", &[])], "webhooks.url \"example\""),
        (vec![unknown], "webhooks.kinds"),
        (vec![webhook(public, &[]), webhook(public, &[])], "is given twice"),
    ] {
        let mut client = pair.operator();
        let answer = within("an answer", client.create_session(session_with(webhooks))).await;
        invalid(answer, text);
    }
}
