//! Input items: each kind of item reaches the runner unchanged, and the prompt contains it.

use troupe_proto::{
    common::v1::{BlockKind, PromptBlock},
    supervisor::v1::{
        GetPromptRequest, Input, InputItem, NamedPath, SendInputRequest, StatusKind, event::Kind, input_item::Item,
    },
};
use troupe_tests::{
    pair::Pair,
    runner::Runner,
    tree::{Tree, kind},
    within,
};

use crate::{attached, working};

/// The task block of a prompt with [`pieces`].
const SHOWN: &str = "- look at this\n  and at that\n  [local_image:/tmp/a b.png]\n  \
                     [skill:$lint](/skills/lint/SKILL.md)\n  [mention:$main.rs](src/main.rs)";

fn piece(item: Item) -> InputItem {
    InputItem { item: Some(item) }
}

fn path(name: &str, path: &str) -> NamedPath {
    NamedPath {
        name: name.to_owned(),
        path: path.to_owned(),
    }
}

/// Returns one item of each kind.
fn pieces() -> Vec<InputItem> {
    vec![
        piece(Item::Text(String::from("look at this\nand at that"))),
        piece(Item::LocalImage(String::from("/tmp/a b.png"))),
        piece(Item::Skill(path("lint", "/skills/lint/SKILL.md"))),
        piece(Item::Mention(path("main.rs", "src/main.rs"))),
    ]
}

fn input(items: Vec<InputItem>) -> Input {
    Input {
        items,
        ..Input::default()
    }
}

fn task(blocks: &[PromptBlock]) -> &str {
    let task = blocks.iter().find(|block| block.kind() == BlockKind::Task);
    &task.unwrap().text
}

async fn send(tree: &Tree, thread: &str, items: Vec<InputItem>) -> StatusKind {
    let request = SendInputRequest {
        thread_id: thread.to_owned(),
        items,
        ..SendInputRequest::default()
    };
    kind(&tree.try_send(request).await.unwrap())
}

/// Returns the stored task of a turn.
async fn kept_task(tree: &Tree, thread: &str, turn: u32) -> String {
    let request = GetPromptRequest {
        thread_id: thread.to_owned(),
        turn,
        ..GetPromptRequest::default()
    };
    let answer = within("a prompt", tree.client().get_prompt(request)).await;
    task(&answer.unwrap().into_inner().prompt.unwrap().blocks).to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spawn_items_reach_runner_unchanged() {
    let (_pair, tree, mut runner) = attached().await;
    let worker = tree
        .spawn_where("worker", |spawn| {
            spawn.objective = String::from("a clean build");
            spawn.definition_of_done = String::from("no warnings");
            spawn.message = None;
            spawn.items = pieces();
        })
        .await
        .id;
    let turn = runner.start_of(&worker).await.turn.unwrap();
    assert_eq!(
        turn.inputs,
        [Input {
            objective: String::from("a clean build"),
            definition_of_done: String::from("no warnings"),
            ..input(pieces())
        }]
    );
    assert!(task(&turn.blocks).contains(SHOWN), "{}", task(&turn.blocks));
    assert_eq!(kept_task(&tree, &worker, 1).await, task(&turn.blocks));

    let log = tree.log().await;
    let spawned = log
        .iter()
        .find_map(|event| match &event.kind {
            Some(Kind::ThreadSpawned(spawned)) if event.thread_id == worker => spawned.input.clone(),
            _ => None,
        })
        .unwrap();
    assert!(spawned.preview.starts_with("look at this"), "{spawned:?}");
    assert!(!spawned.preview.contains('\n'), "one line");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sent_items_arrive_in_order_with_next_turn() {
    let (_pair, tree, mut runner, worker, mut attempt) = working().await;
    runner.complete(&attempt, "done").await;
    assert_eq!(send(&tree, &worker, pieces()).await, StatusKind::PendingInit);
    let turn = runner.next_turn(&mut attempt).await;
    assert_eq!(turn.inputs, [input(pieces())]);
    assert!(task(&turn.blocks).contains(SHOWN), "{}", task(&turn.blocks));
    assert_eq!(kept_task(&tree, &worker, 2).await, task(&turn.blocks));

    // The item is sent during a turn. It is part of the next turn, together with other pending input.
    let image = vec![piece(Item::LocalImage(String::from("/tmp/c.png")))];
    assert_eq!(send(&tree, &worker, image.clone()).await, StatusKind::Running);
    tree.send(&worker, "and this").await;
    runner.complete(&attempt, "done").await;
    let turn = runner.turn_of(&attempt).await;
    let text = vec![piece(Item::Text(String::from("and this")))];
    assert_eq!(turn.inputs, [input(image), input(text)]);
    let shown = "- [local_image:/tmp/c.png]\n- and this";
    assert!(task(&turn.blocks).contains(shown), "{}", task(&turn.blocks));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn root_items_reach_runner() {
    let pair = Pair::start().await;
    let mut runner = Runner::attach(&pair, "r").await;
    let tree = pair
        .tree_where(|session| {
            session.agent_type = String::from("worker");
            session.items = pieces();
        })
        .await;
    let turn = runner.start_of(&tree.root).await.turn.unwrap();
    assert_eq!(turn.inputs, [input(pieces())]);
    assert!(task(&turn.blocks).contains(SHOWN), "{}", task(&turn.blocks));
}
