//! `troupe run --one-thread`: a runner for one thread.

use std::process::Stdio;

use tokio::process::Child;
use troupe_proto::supervisor::v1::{CreateSessionRequest, SpawnAgentRequest, StatusKind};
use troupe_tests::{
    agents::settled,
    process::{Home, Up},
    tree::{Tree, kind},
    within,
};

#[tokio::test]
async fn runner_for_one_thread_ends_with_its_program() {
    let home = Home::default();
    let up = Up::start(&home).await;
    let supervisor = format!("http://{}", up.supervisor);
    let run = |id: &str| -> Child {
        let mut runner = home.troupe(&["run", "--one-thread", "--supervisor", &supervisor, "--runner-id", id]);
        runner
            .args(["--scratch", id])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        runner.spawn().unwrap()
    };
    let tree = Tree::open(up.client(), CreateSessionRequest::default()).await;
    let spawn = async || {
        let request = SpawnAgentRequest {
            message: Some("Hello.".to_owned()),
            ..tree.request("worker")
        };
        tree.try_spawn(request).await.unwrap().thread.unwrap().thread_id
    };

    // Its program stays for the next turn, although another thread needs a slot.
    let mut first = run("first");
    let one = spawn().await;
    assert_eq!(kind(&settled(&tree, &one).await), StatusKind::Completed);
    let other = spawn().await;
    let mut second = run("second");
    assert_eq!(kind(&settled(&tree, &other).await), StatusKind::Completed);
    assert!(first.try_wait().unwrap().is_none());
    for (thread, id, runner) in [(one, "first", &mut first), (other, "second", &mut second)] {
        assert_eq!(tree.thread(&thread).await.runner_id, id);
        tree.close(&thread).await;
        assert!(within("the end", runner.wait()).await.unwrap().success());
    }
}
