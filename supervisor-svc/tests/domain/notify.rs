//! Notifications for users and their texts.

use std::collections::BTreeSet;

use supervisor_core::{
    event::{ApprovalKind, ConditionKind, Event, ThreadEvent},
    ids::{ApprovalId, Sequence, ThreadId},
    rules::notify::{Attention, Notification, NotificationPolicy},
    settings::{
        NotificationKind::{
            self, AgentTurnComplete, ApprovalRequested, BudgetExhausted, RunnerLost, Stalled, SubAgentComplete,
        },
        Settings, Webhook,
    },
    state::webhook::WebhookStart,
    status::StatusKind::{Completed, Errored, Interrupted, Running},
    time::UnixMillis,
};
use uuid::Uuid;

use crate::world::{World, close, completed, operator, resume, role_of, run_root, settings, settled};

/// Returns the notification of the newest event.
fn newest(world: &World) -> Option<Notification> {
    Notification::of(&world.session, world.log.last().unwrap())
}

fn kinds(notification: &Notification) -> Vec<NotificationKind> {
    notification.kinds.iter().copied().collect()
}

/// Returns the notifications of the whole log: their threads and kinds.
fn all(world: &World) -> Vec<(ThreadId, Vec<NotificationKind>)> {
    world
        .log
        .iter()
        .filter_map(|recorded| Notification::of(&world.session, recorded))
        .map(|notification| (notification.thread, kinds(&notification)))
        .collect()
}

fn condition(kind: ConditionKind, active: bool) -> ThreadEvent {
    ThreadEvent::ConditionChanged {
        kind,
        active,
        reason: String::from("so it is"),
    }
}

#[test]
fn notification_describes_end_of_turn() {
    for (kind, expected, text) in [
        (Completed, vec![AgentTurnComplete, SubAgentComplete], "completed: done"),
        (Errored, vec![SubAgentComplete], "failed: it broke"),
        (Interrupted, vec![SubAgentComplete], "was interrupted: enough"),
    ] {
        let (mut world, id) = World::with_thread_in(Running);
        world.end(id, settled(kind));
        let notification = newest(&world).unwrap();
        assert_eq!(notification.sequence, world.session.sequence);
        assert_eq!((notification.thread, kinds(&notification)), (id, expected), "{kind}");
        let text = format!("agent worker (worker) {text}");
        assert_eq!(notification.text(true), text);
        let bare = text.split(':').next().unwrap();
        assert_eq!(notification.text(false), bare, "viewers see no texts");
    }
}

#[test]
fn notification_kind_and_text_of_other_events() {
    let approval = ThreadEvent::ApprovalRequested {
        approval: ApprovalId::from_uuid(Uuid::from_u128(1)),
        kind: ApprovalKind::Spawn,
        subject: String::from("spawn a reviewer"),
        deadline: Some(UnixMillis::new(9_000_000)),
        edge: None,
        call: None,
    };
    let [stalled, exhausted, unreachable] = [
        ConditionKind::Stalled,
        ConditionKind::BudgetExhausted,
        ConditionKind::Unreachable,
    ]
    .map(|kind| condition(kind, true));
    for (event, expected, text) in [
        (approval, ApprovalRequested, "waits for an approval: spawn a reviewer"),
        (stalled, Stalled, "stalled: so it is"),
        (exhausted, BudgetExhausted, "has spent its budget: so it is"),
        (unreachable, RunnerLost, "lost its runner: so it is"),
    ] {
        let (mut world, id) = World::with_thread_in(Running);
        world.append(Event::Thread(id, event));
        let notification = newest(&world).unwrap();
        assert_eq!(kinds(&notification), [expected]);
        assert_eq!(notification.text(true), format!("agent worker (worker) {text}"));
    }
    for silent in [
        condition(ConditionKind::Stalled, false),
        condition(ConditionKind::Unreachable, false),
        condition(ConditionKind::PolicyGap, true),
        condition(ConditionKind::ContextLost, true),
        condition(ConditionKind::AwaitingToolApproval, true),
        ThreadEvent::NoteSet(String::from("hello")),
    ] {
        let (mut world, id) = World::with_thread_in(Running);
        world.append(Event::Thread(id, silent.clone()));
        assert_eq!(newest(&world), None, "{silent:?}");
    }
}

#[test]
fn root_thread_causes_no_notifications() {
    let mut world = World::open(settings(), run_root());
    let root = world.root();
    world.begin(root);
    world.end(root, settled(Completed));
    world.close(root);
    assert!(all(&world).is_empty());
}

#[test]
fn cascade_notifies_only_for_its_top_thread() {
    let (mut world, root) = World::with_slots(4);
    let top = world.spawn_running(root);
    let (under, beside) = (world.spawn_running(top), world.spawn_running(root));
    world.run(&close(operator(), top));
    // Both end their turns under the fence.
    world.end(under, settled(Completed));
    world.end(top, settled(Completed));
    world.end(beside, settled(Errored));
    world.wind_down();
    let until_closed = vec![(beside, vec![SubAgentComplete]), (top, vec![SubAgentComplete])];
    assert_eq!(all(&world), until_closed);

    // A reopened thread causes notifications again. Earlier notifications stay unchanged.
    world.run(&resume(operator(), top));
    world.next_turn(top);
    world.end(top, settled(Completed));
    world.run(&close(operator(), top));
    let mut until_now = until_closed;
    until_now.push((top, vec![AgentTurnComplete, SubAgentComplete]));
    assert_eq!(all(&world), until_now);
}

#[test]
fn notification_text_is_one_printable_line() {
    let (mut world, root) = World::with_slots(1);
    let id = world.spawn_with(root, |spawn| {
        spawn.spawned.label = String::from("par\u{1b}[31m\nser");
        role_of(spawn).agent_name = String::from("fast");
    });
    world.begin(id);
    world.end(id, completed(Some(&"all\tgood\u{7} ".repeat(100))));
    let notification = newest(&world).unwrap();
    let line = "agent par [31m ser (worker/fast) completed";
    assert_eq!(notification.text(false), line);
    let text = notification.text(true);
    let detail = text
        .strip_prefix(line)
        .and_then(|rest| rest.strip_prefix(": "))
        .unwrap();
    assert!(
        detail.starts_with("all good all good") && detail.ends_with('…'),
        "{detail}"
    );
    assert_eq!(detail.chars().count(), 160);

    world.next_turn(id);
    world.end(id, completed(None));
    assert_eq!(newest(&world).unwrap().text(true), line, "the turn had no message");
}

#[test]
fn policy_and_focus_select_notifications() {
    let (mut world, id) = World::with_thread_in(Running);
    world.end(id, settled(Completed));
    let notification = newest(&world).unwrap();
    let only = |kind| NotificationPolicy::Kinds(BTreeSet::from([kind]));
    let both = Some(vec![AgentTurnComplete, SubAgentComplete]);
    let seen = Some(vec![SubAgentComplete]);
    let elsewhere = Some(world.root());
    for (policy, focus, expected) in [
        (NotificationPolicy::default(), None, &both),
        (NotificationPolicy::default(), elsewhere, &both),
        (NotificationPolicy::default(), Some(id), &None),
        (NotificationPolicy::Off, None, &None),
        (NotificationPolicy::All, None, &both),
        (NotificationPolicy::All, Some(id), &seen),
        (only(SubAgentComplete), None, &both),
        (only(SubAgentComplete), Some(id), &seen),
        (only(Stalled), None, &None),
    ] {
        let attention = Attention { policy, focus };
        let told = attention.kinds_of(&notification);
        let told = told.map(|kinds| kinds.into_iter().collect::<Vec<_>>());
        assert_eq!(&told, expected, "{attention:?}");
    }
}

fn webhook(host: &str, secret: &str) -> Webhook {
    Webhook {
        url: format!("https://{host}.example.com/"),
        kinds: Vec::new(),
        secret: String::from(secret),
    }
}

/// Replaces the session's webhooks. Returns the sequence number of the event.
fn replace(world: &mut World, webhooks: Vec<Webhook>) -> Sequence {
    let event = world.session.sequence.next();
    world.update(|change| change.webhooks = Some(webhooks));
    event
}

fn starts(world: &World) -> Vec<WebhookStart> {
    world.session.receivers().map(|(_, start)| start).collect()
}

#[test]
fn webhook_starts_at_event_that_added_it() {
    let [first, second] = ["first", "second"].map(|host| webhook(host, "a secret of 19 byte"));
    assert_eq!(Attention::of_webhook(&first).policy, NotificationPolicy::All);
    let opened = Settings {
        webhooks: vec![first.clone()],
        ..settings()
    };
    let mut world = World::open(opened, run_root());
    let begins = WebhookStart::given_by;
    assert_eq!(starts(&world), [begins(Sequence::ZERO)]);

    let added = replace(&mut world, vec![second.clone(), first]);
    assert_eq!(
        starts(&world),
        [begins(added), begins(Sequence::ZERO)],
        "a kept webhook continues"
    );
    let mut other = webhook("first", "another secret, longer");
    other.kinds = vec![Stalled];
    replace(&mut world, vec![other.clone(), second.clone()]);
    assert_eq!(
        starts(&world),
        [begins(Sequence::ZERO), begins(added)],
        "the URL alone identifies a webhook"
    );
    world.pause(true);
    assert_eq!(starts(&world), [begins(Sequence::ZERO), begins(added)]);

    replace(&mut world, vec![other.clone()]);
    let again = replace(&mut world, vec![other, second]);
    assert_eq!(
        starts(&world),
        [begins(Sequence::ZERO), begins(again)],
        "a re-added webhook starts again"
    );
    assert_eq!(World::replay(&world.log), world.session);
}

#[test]
fn webhook_position_starts_where_its_url_was_set() {
    let at = |number| Some(Sequence::new(number));
    let given = WebhookStart::given_by(Sequence::new(20));
    for (reached, position) in [(None, 20), (at(19), 20), (at(20), 20), (at(31), 31)] {
        assert_eq!(given.position(reached), Sequence::new(position), "{reached:?}");
    }
}
