//! `troupe run --one-thread` and `--one-session`: runners for single use.

use std::{collections::BTreeMap, process::Stdio};

use tokio::process::Child;
use troupe_proto::supervisor::v1::{CreateSessionRequest, ListRunnersRequest, StatusKind};
use troupe_tests::{
    agents::{settled, until},
    process::{Home, Up},
    tree::{Tree, kind},
    within,
};

/// Services without a runner.
struct Services {
    home: Home,
    up: Up,
}

impl Services {
    async fn start() -> Self {
        let home = Home::default();
        let up = Up::start(&home).await;
        Self { home, up }
    }

    async fn tree(&self) -> Tree {
        Tree::open(self.up.client(), CreateSessionRequest::default()).await
    }

    fn runner(&self, id: &str, flag: &str) -> Child {
        let supervisor = format!("http://{}", self.up.supervisor);
        let mut runner = self
            .home
            .troupe(&["run", flag, "--supervisor", &supervisor, "--runner-id", id]);
        runner
            .args(["--scratch", id])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        runner.spawn().unwrap()
    }

    /// Waits until `number` runners are attached. Returns the session of each runner, which is empty for a free runner.
    async fn await_runners(&self, number: usize) -> BTreeMap<String, String> {
        let look = async || {
            let answer = self
                .up
                .client()
                .list_runners(ListRunnersRequest::default())
                .await
                .unwrap();
            let runners = answer.into_inner().runners;
            (runners.len() == number).then_some(runners)
        };
        let runners = until("runners", look).await.into_iter();
        runners.map(|runner| (runner.runner_id, runner.session_id)).collect()
    }
}

/// Spawns a thread with a task.
async fn spawn(tree: &Tree) -> String {
    tree.spawn_for("worker", "Hello.").await.id
}

/// Waits until a thread's turn is complete. Returns the runner that executed it.
async fn runner_of(tree: &Tree, thread: &str) -> String {
    assert_eq!(kind(&settled(tree, thread).await), StatusKind::Completed);
    tree.thread(thread).await.runner_id
}

async fn assert_ends(runner: &mut Child) {
    assert!(within("the end", runner.wait()).await.unwrap().success());
}

#[tokio::test]
async fn runner_for_one_thread_ends_with_its_program() {
    let services = Services::start().await;
    let tree = services.tree().await;

    // The first runner's program stays for the next turn, although another thread needs a runner.
    let mut first = services.runner("first", "--one-thread");
    let one = spawn(&tree).await;
    assert_eq!(runner_of(&tree, &one).await, "first");
    let other = spawn(&tree).await;
    let mut second = services.runner("second", "--one-thread");
    assert_eq!(runner_of(&tree, &other).await, "second");
    assert!(first.try_wait().unwrap().is_none());
    for (thread, runner) in [(one, &mut first), (other, &mut second)] {
        tree.close(&thread).await;
        assert_ends(runner).await;
    }
}

#[tokio::test]
async fn runner_for_one_session_ends_with_its_last_program() {
    let services = Services::start().await;
    let (tree, other_tree) = (services.tree().await, services.tree().await);

    let mut first = services.runner("first", "--one-session");
    let one = spawn(&tree).await;
    assert_eq!(runner_of(&tree, &one).await, "first");
    // A thread of another session waits for another runner.
    let other = spawn(&other_tree).await;
    let mut second = services.runner("second", "--one-session");
    assert_eq!(runner_of(&other_tree, &other).await, "second");
    // The session's own runner is preferred to a runner without programs, which waits for another session.
    let mut idle = services.runner("idle", "--one-session");
    let sessions = services.await_runners(3).await;
    assert_eq!(sessions["first"], tree.session);
    assert_eq!(sessions["second"], other_tree.session);
    assert_eq!(sessions["idle"], "");
    let two = spawn(&tree).await;
    assert_eq!(runner_of(&tree, &two).await, "first");

    tree.close(&one).await;
    let three = spawn(&tree).await;
    assert_eq!(runner_of(&tree, &three).await, "first");
    tree.close(&two).await;
    tree.close(&three).await;
    assert_ends(&mut first).await;
    other_tree.close(&other).await;
    assert_ends(&mut second).await;
    assert!(idle.try_wait().unwrap().is_none());
}
