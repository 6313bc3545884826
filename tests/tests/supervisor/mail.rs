//! Mailboxes over the API: reading, acknowledging, paging, and turns that are started by mail.

use tonic::Status;
use troupe_proto::supervisor::v1::{
    AcknowledgeMailboxRequest, Event, ListMailboxRequest, ListMailboxResponse, Mail, StatusKind, WakePolicy,
    event::Kind, mail::Body,
};
use troupe_tests::{client::Supervisor, pair::Pair, refusal::invalid, runner::Runner, tree::Tree, within};

use crate::{attached, soon_compacted, started};

fn of(thread: &str) -> ListMailboxRequest {
    ListMailboxRequest {
        thread_id: thread.to_owned(),
        ..ListMailboxRequest::default()
    }
}

async fn list(mut client: Supervisor, request: ListMailboxRequest) -> Result<ListMailboxResponse, Status> {
    let answer = within("a mailbox", client.list_mailbox(request)).await?;
    Ok(answer.into_inner())
}

/// Returns the mail in a thread's mailbox.
async fn mailbox(tree: &Tree, thread: &str) -> Vec<Mail> {
    let answer = list(tree.client(), of(thread)).await.unwrap();
    assert_eq!(answer.next_page_token, "");
    answer.mail
}

async fn acknowledge(mut client: Supervisor, thread: &str, up_to_sequence: u64) -> Result<u32, Status> {
    let request = AcknowledgeMailboxRequest {
        thread_id: thread.to_owned(),
        up_to_sequence,
        ..AcknowledgeMailboxRequest::default()
    };
    let answer = within("an answer", client.acknowledge_mailbox(request)).await?;
    Ok(answer.into_inner().remaining)
}

/// Returns the child that a letter is about, and its status.
fn settled(mail: &Mail) -> (&str, StatusKind) {
    match mail.body.as_ref().unwrap() {
        Body::Settled(settled) => (&settled.thread_id, settled.status.as_ref().unwrap().kind()),
        other => panic!("expected a settled child, not {other:?}"),
    }
}

fn sequences(mail: &[Mail]) -> Vec<u64> {
    mail.iter().map(|mail| mail.sequence).collect()
}

/// Reads a mailbox in pages of one letter. Acknowledges up to a sequence after the first page, if one is given.
async fn page_by_page(tree: &Tree, include_acknowledged: bool, acknowledged: Option<u64>) -> Vec<u64> {
    let mut request = ListMailboxRequest {
        page_size: 1,
        include_acknowledged,
        ..of(&tree.root)
    };
    let mut seen = Vec::new();
    loop {
        let page = list(tree.client(), request.clone()).await.unwrap();
        assert!(page.mail.len() <= 1);
        seen.extend(sequences(&page.mail));
        if page.next_page_token.is_empty() {
            return seen;
        }
        request.page_token = page.next_page_token;
        if let Some(sequence) = acknowledged
            && seen.len() == 1
        {
            acknowledge(tree.client(), &tree.root, sequence).await.unwrap();
        }
    }
}

/// Spawns a worker below a thread and completes its turn.
async fn completed_child(tree: &Tree, runner: &mut Runner, parent: &str) -> String {
    let child = tree.spawn_under(parent, "worker").await.id;
    let attempt = runner.run(&child).await;
    runner.complete(&attempt, "done").await;
    child
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mail_is_kept_until_acknowledged_across_restart() {
    let (mut pair, tree) = started().await;
    let first = tree.spawn("worker").await.id;
    tree.close(&first).await;
    let mut runner = Runner::attach(&pair, "r").await;
    let second = completed_child(&tree, &mut runner, &tree.root).await;

    let mail = mailbox(&tree, &tree.root).await;
    let about: Vec<_> = mail.iter().map(settled).collect();
    assert_eq!(
        about,
        [(&*first, StatusKind::Shutdown), (&*second, StatusKind::Completed)]
    );
    assert!(mail.iter().all(|mail| !mail.acknowledged && mail.time.is_some()));
    let log = tree.log().await;
    for letter in &mail {
        let event: &Event = log.iter().find(|event| event.sequence == letter.sequence).unwrap();
        assert_eq!((&*event.thread_id, event.time), (settled(letter).0, letter.time));
    }

    // With the root's token, the request means the root's mailbox.
    let own = pair.with_token(&tree.root_token);
    assert_eq!(
        list(own.clone(), ListMailboxRequest::default()).await.unwrap().mail,
        mail
    );
    let (oldest, newest) = (mail[0].sequence, mail[1].sequence);
    let answer = acknowledge(own.clone(), "", newest + 1).await;
    invalid(answer, "is ahead of the newest mail");
    assert_eq!(acknowledge(own.clone(), "", oldest).await.unwrap(), 1);
    assert_eq!(
        acknowledge(own, "", oldest).await.unwrap(),
        1,
        "a repeated acknowledgement changes nothing"
    );

    let tree = tree.after_restart(&mut pair).await;
    assert_eq!(sequences(&mailbox(&tree, &tree.root).await), [newest]);
    let everything = ListMailboxRequest {
        include_acknowledged: true,
        ..of(&tree.root)
    };
    let all = list(tree.client(), everything).await.unwrap().mail;
    let known: Vec<_> = all.iter().map(|mail| (mail.sequence, mail.acknowledged)).collect();
    assert_eq!(known, [(oldest, true), (newest, false)]);
    assert_eq!(acknowledge(tree.client(), &tree.root, newest).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mail_pages_are_complete_while_mail_is_acknowledged() {
    let (_pair, tree, mut runner) = attached().await;
    for _ in 0..3 {
        completed_child(&tree, &mut runner, &tree.root).await;
    }
    let all = sequences(&mailbox(&tree, &tree.root).await);
    assert_eq!(page_by_page(&tree, false, Some(all[0])).await, all);
    assert_eq!(page_by_page(&tree, true, None).await, all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remaining_mail_of_compacted_log_is_listed() {
    let pair = Pair::with(|config| config.upkeep = soon_compacted()).await;
    let tree = pair.tree().await;
    let mut runner = Runner::attach(&pair, "r").await;
    completed_child(&tree, &mut runner, &tree.root).await;
    let read = sequences(&mailbox(&tree, &tree.root).await);
    acknowledge(tree.client(), &tree.root, read[0]).await.unwrap();
    completed_child(&tree, &mut runner, &tree.root).await;
    tree.compact_beyond(tree.head().await).await;
    completed_child(&tree, &mut runner, &tree.root).await;

    let waiting = sequences(&mailbox(&tree, &tree.root).await);
    assert_eq!(
        waiting.len(),
        2,
        "one letter from before the compaction and one from after it"
    );
    assert_eq!(page_by_page(&tree, true, None).await, waiting);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mail_wakes_threads_by_wake_policy() {
    let (pair, tree, mut runner) = attached().await;
    let parent = tree
        .spawn_where("orchestrator", |spawn| spawn.wake_policy = WakePolicy::OnIdle.into())
        .await;
    assert_eq!(parent.thread.wake_policy(), WakePolicy::OnIdle);
    let parent = parent.id;
    let mut attempt = runner.run(&parent).await;
    runner.complete(&attempt, "delegated").await;
    completed_child(&tree, &mut runner, &parent).await;
    let by_root = list(pair.with_token(&tree.root_token), of(&parent)).await;
    assert_eq!(
        by_root.unwrap().mail.len(),
        1,
        "a thread reads the mailboxes of its subtree"
    );

    let turn = runner.next_turn(&mut attempt).await;
    assert_eq!((turn.turn, turn.inputs.len()), (2, 0), "the mail starts a turn");
    runner.complete(&attempt, "read").await;
    assert_eq!(tree.status(&parent).await, StatusKind::Completed);
    assert!(mailbox(&tree, &parent).await.is_empty());

    // The next letter wakes the thread again. No other turn was started in between.
    completed_child(&tree, &mut runner, &parent).await;
    let turn = runner.next_turn(&mut attempt).await;
    assert_eq!((turn.turn, turn.inputs.len()), (3, 0));
    let log = tree.log().await;
    let dispatched = log
        .iter()
        .filter(|event| event.thread_id == parent && matches!(event.kind, Some(Kind::TurnDispatched(_))));
    assert_eq!(dispatched.count(), 3);
}
