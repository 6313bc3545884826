//! Groups: their items become threads, and the parent receives one outcome.

use tonic::{Code, Status};
use troupe_proto::{
    reason::Reason,
    supervisor::v1::{
        Budget, CancelGroupRequest, CreateGroupRequest, CreateGroupResponse, GetGroupRequest, Group, GroupItem,
        GroupItemState as I, GroupItemStatus, GroupState as G, ListGroupItemsRequest, ListMailboxRequest,
        RetryGroupRequest, SpawnAgentRequest, StartThread, StatusKind, TurnOutcome, UpdateGroupRequest, Usage,
        event::Kind, mail::Body,
    },
};
use troupe_tests::{
    accepted,
    client::Supervisor,
    content::read,
    pair::{Pair, VIEWER},
    refusal::{invalid, not_found, refused},
    runner::{Attempt, Runner},
    tree::{Tree, kind},
    within,
};

use crate::attached;

const SCHEMA: &str = r#"{"type": "object", "required": ["ok"]}"#;

fn items(count: usize) -> Vec<GroupItem> {
    let item = |number| GroupItem {
        key: format!("k{number}"),
        variables: [(String::from("path"), format!("{number}.rs"))].into_iter().collect(),
        message: String::new(),
    };
    (0..count).map(item).collect()
}

fn of(tree: &Tree, count: usize) -> CreateGroupRequest {
    CreateGroupRequest {
        session_id: tree.session.clone(),
        name: String::from("review"),
        template: Some(SpawnAgentRequest {
            agent_type: String::from("worker"),
            message: Some(String::from("Review {path}.")),
            ..SpawnAgentRequest::default()
        }),
        items: items(count),
        max_concurrency: 3,
        ..CreateGroupRequest::default()
    }
}

async fn create(client: &Supervisor, request: CreateGroupRequest) -> Result<CreateGroupResponse, Status> {
    Ok(within("CreateGroup", client.clone().create_group(request))
        .await?
        .into_inner())
}

async fn created(tree: &Tree, request: CreateGroupRequest) -> String {
    let group = create(&tree.client(), request).await.unwrap().group.unwrap();
    group.spec.unwrap().group_id
}

async fn group(tree: &Tree, id: &str, waits: bool) -> Group {
    let request = GetGroupRequest {
        session_id: tree.session.clone(),
        group_id: id.to_owned(),
        wait: waits.then_some(prost_types::Duration { seconds: 60, nanos: 0 }),
        ..GetGroupRequest::default()
    };
    let answer = within("GetGroup", tree.client().get_group(request)).await.unwrap();
    answer.into_inner().group.unwrap()
}

async fn listed(client: Supervisor, tree: &Tree, id: &str) -> Vec<GroupItemStatus> {
    let mut items = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListGroupItemsRequest {
            session_id: tree.session.clone(),
            group_id: id.to_owned(),
            page_size: 2,
            page_token,
            ..ListGroupItemsRequest::default()
        };
        let page = accepted("ListGroupItems", client.clone().list_group_items(request)).await;
        items.extend(page.items);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return items;
        }
    }
}

async fn open_threads(tree: &Tree) -> usize {
    let threads = tree.threads().await;
    threads
        .iter()
        .filter(|thread| kind(thread) != StatusKind::Shutdown)
        .count()
}

/// Returns the message of the item that was started.
fn message(start: &StartThread) -> String {
    let blocks = &start.turn.as_ref().unwrap().blocks;
    let task = blocks.iter().map(|block| block.text.as_str()).collect::<String>();
    let line = task.lines().find(|line| line.contains("Review "));
    line.unwrap_or_default().trim_start_matches("- ").to_owned()
}

/// Runs the turns of `attempts` attempts. `outcome` returns the outcome of a turn for the message of its item.
async fn work(runner: &mut Runner, attempts: usize, outcome: impl Fn(&str) -> (TurnOutcome, String)) {
    for _ in 0..attempts {
        let start = runner.start().await;
        let attempt = runner.begin_start(&start).await;
        let (outcome, said) = outcome(&message(&start));
        runner.end(&attempt, outcome, &said).await;
        runner.stop_as_asked(&attempt).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_item_runs_once_and_parent_is_notified_once() {
    let (pair, tree, mut runner) = attached().await;
    let mut request = of(&tree, 7);
    request.template.as_mut().unwrap().result_schema = SCHEMA.to_owned();
    let id = created(&tree, request).await;
    work(&mut runner, 7, |message| {
        (TurnOutcome::Completed, format!("{{\"ok\": {message:?}}}"))
    })
    .await;
    let ended = group(&tree, &id, true).await;
    assert_eq!((ended.state(), ended.succeeded), (G::Succeeded, 7));
    assert_eq!(ended.reason, "7 of 7 items succeeded");

    let items = listed(tree.client(), &tree, &id).await;
    let keys: Vec<&str> = items.iter().map(|item| item.key.as_str()).collect();
    assert_eq!(keys, ["k0", "k1", "k2", "k3", "k4", "k5", "k6"]);
    for (number, item) in items.iter().enumerate() {
        assert_eq!((item.state(), item.attempts), (I::Succeeded, 1));
        let document = item.result.clone().unwrap().document_json;
        assert_eq!(document, format!("{{\"ok\": \"Review {number}.rs.\"}}"));
    }
    let seen = listed(pair.with_token(VIEWER), &tree, &id).await;
    assert!(seen.iter().all(|item| item.message.is_empty()));
    assert!(
        seen.iter()
            .all(|item| item.result.clone().unwrap().document_json.is_empty())
    );

    // The parent receives one letter, with the table as an artifact. There were never more concurrent items than
    // allowed.
    let request = ListMailboxRequest {
        session_id: tree.session.clone(),
        ..ListMailboxRequest::default()
    };
    let mail = accepted("ListMailbox", tree.client().list_mailbox(request)).await.mail;
    assert_eq!(mail.len(), 1, "{mail:?}");
    let Some(Body::GroupEnded(letter)) = &mail[0].body else {
        panic!("{mail:?}")
    };
    assert_eq!(
        (letter.group_id.as_str(), letter.outcome()),
        (id.as_str(), G::Succeeded)
    );
    let table = read(&tree.client(), &tree.session, &ended.table.unwrap().digest)
        .await
        .unwrap();
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&table).unwrap();
    assert_eq!(rows.len(), 7);
    assert_eq!(rows[3]["result"]["ok"], "Review 3.rs.");
    let (mut running, mut most) = (0_u32, 0);
    for event in tree.log().await {
        match event.kind {
            Some(Kind::ThreadSpawned(spawned)) if spawned.group_id == id => running += 1,
            Some(Kind::GroupItemEnded(_)) => running -= 1,
            _ => {}
        }
        most = most.max(running);
    }
    assert_eq!((running, most), (0, 3));
    // The threads of ended items are closed.
    assert_eq!(open_threads(&tree).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_group_has_an_estimate_of_its_usage() {
    let (_pair, tree, mut runner) = attached().await;
    let request = CreateGroupRequest {
        max_concurrency: 1,
        ..of(&tree, 4)
    };
    let id = created(&tree, request).await;
    assert_eq!(
        group(&tree, &id, false).await.estimated_usage,
        None,
        "no item has ended"
    );
    let start = runner.start().await;
    let attempt = runner.begin_start(&start).await;
    let usage = Usage {
        input_tokens: 100,
        output_tokens: 7,
        ..Usage::default()
    };
    runner.complete_having_used(&attempt, usage).await;
    runner.stop_as_asked(&attempt).await;
    // The next item starts after the end of the first one.
    let second = Attempt::of(&runner.start().await);
    let estimate = group(&tree, &id, false).await.estimated_usage.unwrap();
    assert_eq!(
        (estimate.input_tokens, estimate.output_tokens, estimate.turns),
        (400, 28, 4)
    );
    assert_eq!(
        estimate.unpriced_tokens, 428,
        "tokens without a price are counted separately"
    );
    let snapshot = tree.watch().await.whole_snapshot().await;
    assert_eq!(snapshot.groups, [group(&tree, &id, false).await]);
    let root = &snapshot.threads[0];
    let (own, all) = (root.usage.unwrap(), root.subtree_usage.unwrap());
    assert_eq!(
        (own.input_tokens, all.input_tokens),
        (0, 100),
        "closed threads are included"
    );
    runner.begin(&second).await;
    runner.complete(&second, "done").await;
    runner.stop_as_asked(&second).await;
    work(&mut runner, 2, |_| (TurnOutcome::Completed, String::from("done"))).await;
    assert_eq!(group(&tree, &id, true).await.estimated_usage, None);
    assert!(tree.watch().await.whole_snapshot().await.groups.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_items_are_retried_and_can_run_again() {
    let (_pair, tree, mut runner) = attached().await;
    let request = CreateGroupRequest {
        retries: 1,
        max_concurrency: 1,
        ..of(&tree, 2)
    };
    let id = created(&tree, request).await;
    let fails = |message: &str| match message {
        "Review 0.rs." => (TurnOutcome::Errored, String::from("no such file")),
        _ => (TurnOutcome::Completed, String::from("done")),
    };
    work(&mut runner, 3, fails).await;
    let ended = group(&tree, &id, true).await;
    assert_eq!((ended.state(), ended.succeeded, ended.failed), (G::Failed, 1, 1));
    assert_eq!(ended.reason, "1 of 2 items failed, and 0 may fail");
    let items = listed(tree.client(), &tree, &id).await;
    assert_eq!((items[0].state(), items[0].attempts), (I::Failed, 2));
    assert_eq!(items[0].error, "no such file");

    let again = RetryGroupRequest {
        session_id: tree.session.clone(),
        group_id: id.clone(),
        ..RetryGroupRequest::default()
    };
    let running = within("RetryGroup", tree.client().retry_group(again)).await.unwrap();
    assert_eq!(running.into_inner().group.unwrap().pending, 1);
    work(&mut runner, 1, |_| (TurnOutcome::Completed, String::from("done"))).await;
    let ended = group(&tree, &id, true).await;
    assert_eq!((ended.state(), ended.succeeded), (G::Succeeded, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_group_starts_nothing_and_cancel_closes_the_rest() {
    let (_pair, tree, mut runner) = attached().await;
    let id = created(&tree, of(&tree, 6)).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(Attempt::of(&runner.start().await));
    }
    let update = |paused: Option<bool>, max_concurrency: Option<u32>| UpdateGroupRequest {
        session_id: tree.session.clone(),
        group_id: id.clone(),
        paused,
        max_concurrency,
        ..UpdateGroupRequest::default()
    };
    let paused = within("UpdateGroup", tree.client().update_group(update(Some(true), None))).await;
    let paused = paused.unwrap().into_inner().group.unwrap();
    assert_eq!((paused.running, paused.pending), (3, 3));
    let answer = within("UpdateGroup", tree.client().update_group(update(None, Some(0)))).await;
    invalid(answer, "max_concurrency is 0");
    runner.begin(&held[0]).await;
    runner.complete(&held[0], "done").await;
    runner.stop_as_asked(&held[0]).await;
    assert_eq!(group(&tree, &id, false).await.pending, 3, "nothing starts");

    let cancel = CancelGroupRequest {
        session_id: tree.session.clone(),
        group_id: id.clone(),
        reason: String::from("enough"),
        ..CancelGroupRequest::default()
    };
    let ending = within("CancelGroup", tree.client().cancel_group(cancel.clone())).await;
    assert_eq!(ending.unwrap().into_inner().group.unwrap().state(), G::Ending);
    for attempt in &held[1..] {
        runner.stop_as_asked(attempt).await;
    }
    let ended = group(&tree, &id, true).await;
    assert_eq!((ended.state(), ended.cancelled, ended.succeeded), (G::Cancelled, 5, 1));
    assert_eq!(ended.reason, "enough");
    let again = within("CancelGroup", tree.client().cancel_group(cancel)).await;
    assert_eq!(again.unwrap().into_inner().group.unwrap().state(), G::Cancelled);
    assert_eq!(open_threads(&tree).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dry_run_creates_nothing_and_budget_bounds_the_group() {
    let pair = Pair::start().await;
    let budget = |tokens| Budget {
        tokens,
        ..Budget::default()
    };
    let tree = pair.tree_where(|session| session.budget = Some(budget(1_000))).await;
    let mut request = CreateGroupRequest {
        dry_run: true,
        ..of(&tree, 5)
    };
    request.template.as_mut().unwrap().budget = Some(budget(200));
    let dry = create(&tree.client(), request.clone()).await.unwrap();
    assert_eq!(dry.highest_usage.unwrap().tokens, 1_000);
    assert_eq!(dry.group.unwrap().spec.unwrap().group_id, "");
    request.template.as_mut().unwrap().budget = Some(budget(201));
    let answer = create(&tree.client(), request).await;
    let text = "budget.tokens 1005 is more than";
    refused(answer, Code::InvalidArgument, Reason::LimitExceeded, text);
    assert!(
        tree.log()
            .await
            .iter()
            .all(|event| !matches!(event.kind, Some(Kind::GroupCreated(_))))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thread_needs_an_operator_for_a_large_group() {
    let (pair, tree, mut runner) = attached().await;
    let lead = tree.spawn("").await;
    let attempt = runner.run(&lead.id).await;
    let agent = pair.with_token(&lead.token);
    let of_thread = |count| CreateGroupRequest {
        session_id: String::new(),
        approval_above: Some(1_000),
        ..of(&tree, count)
    };
    let group = create(&agent, of_thread(51)).await.unwrap().group.unwrap();
    assert_eq!(
        (group.state(), group.parent_thread_id.as_str()),
        (G::AwaitingApproval, lead.id.as_str())
    );
    tree.resolve(&group.approval_id, false, "too many").await;
    let id = group.spec.unwrap().group_id;
    let ended = self::group(&tree, &id, true).await;
    assert_eq!((ended.state(), ended.cancelled), (G::Cancelled, 51));

    // A thread sees its own groups, but not those of other threads.
    let unnamed = CreateGroupRequest {
        name: String::new(),
        ..of(&tree, 1)
    };
    let tree_id = created(&tree, unnamed).await;
    let foreign = GetGroupRequest {
        group_id: tree_id,
        ..GetGroupRequest::default()
    };
    let answer = within("GetGroup", agent.clone().get_group(foreign)).await;
    not_found(answer, "not found");
    let own = GetGroupRequest {
        group_id: id,
        ..GetGroupRequest::default()
    };
    within("GetGroup", agent.clone().get_group(own)).await.unwrap();
    runner.complete(&attempt, "done").await;
}
