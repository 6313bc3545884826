//! `kill -9` of the supervisor, the runner and both during a group: every item has one final outcome, no item runs twice
//! without a recorded retry, and the concurrency is never exceeded.
//!
//! `TROUPE_GROUP_KILLS` sets the number of kills (6 by default), and `TROUPE_GROUP_ITEMS` the number of items (60).

use std::{collections::BTreeMap, env, net::SocketAddr, path::Path, process::Stdio, time::Duration};

use tokio::{
    process::{Child, Command},
    time::sleep,
};
use troupe_proto::supervisor::v1::{
    CreateGroupRequest, CreateSessionRequest, GetGroupRequest, Group, GroupItem, GroupItemOutcome, GroupState,
    ListTranscriptRequest, RestartPolicy, SpawnAgentRequest, StatusKind, event::Kind,
};
use troupe_tests::{
    client::Supervisor,
    process::troupe,
    rng::Rng,
    service::{Ground, Service},
    tree::{Tree, kind},
    within,
};

const CONCURRENCY: u32 = 16;
const LIMITS: &[&str] = &["--max-threads", "16", "--max-group-items", "10000"];

/// A runner process with the sample agent.
struct Runner {
    command: Command,
    process: Child,
}

impl Runner {
    fn start(address: SocketAddr, home: &Path) -> Self {
        let mut command = Command::new(troupe());
        command
            .env_clear()
            .env("HOME", home)
            .env("PATH", env::var_os("PATH").unwrap_or_default())
            .current_dir(home)
            .args(["run", "--runner-id", "r", "--supervisor", &format!("http://{address}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let process = command.spawn().unwrap();
        Self { command, process }
    }

    async fn kill(&mut self) {
        self.process.kill().await.unwrap();
    }

    fn start_again(&mut self) {
        self.process = self.command.spawn().unwrap();
    }
}

fn given(variable: &str, default: usize) -> usize {
    env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// Reads a group across restarts of the service.
async fn group(client: &Supervisor, session: &str) -> Option<Group> {
    let request = GetGroupRequest {
        session_id: session.to_owned(),
        name: String::from("g"),
        ..GetGroupRequest::default()
    };
    let answer = client.clone().get_group(request).await.ok()?;
    answer.into_inner().group
}

fn has_ended(group: &Group) -> bool {
    matches!(
        group.state(),
        GroupState::Succeeded | GroupState::Failed | GroupState::Cancelled
    )
}

async fn create(service: &Service, items: usize) -> Tree {
    let request = CreateSessionRequest {
        restart_policy: RestartPolicy::OnLost.into(),
        ..CreateSessionRequest::default()
    };
    let tree = Tree::open(service.client(), request).await;
    let item = |number: usize| GroupItem {
        key: number.to_string(),
        ..GroupItem::default()
    };
    let request = CreateGroupRequest {
        session_id: tree.session.clone(),
        name: String::from("g"),
        template: Some(SpawnAgentRequest {
            agent_type: String::from("worker"),
            message: Some(String::from("Do {key}.")),
            ..SpawnAgentRequest::default()
        }),
        items: (0..items).map(item).collect(),
        max_concurrency: CONCURRENCY,
        retries: 10,
        ..CreateGroupRequest::default()
    };
    within("CreateGroup", tree.client().create_group(request))
        .await
        .unwrap();
    tree
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn group_survives_kills_of_supervisor_and_runner() {
    let kills = given("TROUPE_GROUP_KILLS", 6);
    let items = given("TROUPE_GROUP_ITEMS", 60);
    let ground = Ground::new().await;
    let home = tempfile::tempdir().unwrap();
    let mut service = ground.start(LIMITS).await;
    let mut runner = Runner::start(service.address(), home.path());
    let tree = create(&service, items).await;
    let session = tree.session.clone();
    let mut rng = Rng::new(7, "kills");
    let mut done = 0;
    while done < kills {
        sleep(Duration::from_millis(100 + rng.below(300))).await;
        if group(&service.client(), &session)
            .await
            .is_some_and(|group| has_ended(&group))
        {
            break;
        }
        done += 1;
        let victim = rng.below(3);
        if victim != 0 {
            runner.kill().await;
        }
        if victim != 1 {
            let address = service.address().to_string();
            service.kill().await;
            service = ground.start_at(&address, LIMITS).await;
        }
        if victim != 0 {
            runner.start_again();
        }
    }
    println!("{done} kills");
    assert!(done > 0, "the group ended before the first kill");
    let client = service.client();
    let ended = async {
        loop {
            match group(&client, &session).await {
                Some(group) if has_ended(&group) => return group,
                _ => sleep(Duration::from_millis(100)).await,
            }
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(120), ended)
        .await
        .expect("the group ends");
    let total = u32::try_from(items).unwrap();
    assert_eq!(ended.succeeded + ended.failed, total, "{ended:?}");

    let tree = tree.by(client);
    let (mut spawns, mut retries, mut finals): (BTreeMap<u32, u32>, BTreeMap<u32, u32>, BTreeMap<u32, u32>) =
        Default::default();
    let (mut running, mut most) = (0_u32, 0);
    for event in tree.log().await {
        match event.kind {
            Some(Kind::ThreadSpawned(spawned)) if !spawned.group_id.is_empty() => {
                *spawns.entry(spawned.group_item).or_default() += 1;
                running += 1;
            }
            Some(Kind::GroupItemEnded(ended)) => {
                let counts = match ended.outcome() {
                    GroupItemOutcome::Retried => &mut retries,
                    _ => &mut finals,
                };
                *counts.entry(ended.item).or_default() += 1;
                running -= 1;
            }
            _ => {}
        }
        most = most.max(running);
    }
    assert!(most <= CONCURRENCY, "{most} items ran at a time");
    assert_eq!(finals.len(), items);
    for (item, spawned) in &spawns {
        assert_eq!(finals[item], 1, "item {item} has one final outcome");
        assert_eq!(
            *spawned,
            1 + retries.get(item).copied().unwrap_or_default(),
            "item {item}"
        );
    }
    let threads = tree.threads().await;
    let open = threads.iter().filter(|thread| kind(thread) != StatusKind::Shutdown);
    assert_eq!(open.count(), 1, "only the root is open");
    for thread in threads.iter().filter(|thread| thread.depth == 1).step_by(10) {
        let request = ListTranscriptRequest {
            thread_id: thread.thread_id.clone(),
            page_size: 1_000,
            ..ListTranscriptRequest::default()
        };
        let page = within("ListTranscript", tree.client().list_transcript(request)).await;
        let entries = page.unwrap().into_inner().entries;
        let numbers: Vec<u64> = entries.iter().map(|entry| entry.number).collect();
        assert!(numbers.iter().copied().eq(1..=entries.len() as u64), "{numbers:?}");
    }
    runner.kill().await;
    service.kill().await;
}
