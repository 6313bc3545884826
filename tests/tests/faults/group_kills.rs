//! `kill -9` of the supervisor, of the runner and of both during a group: every item has one final outcome, no item
//! runs twice without a recorded retry, the maximum concurrency is never exceeded, transcripts contain every
//! acknowledged entry once and in order, and a cancelled group leaves no agent process.
//!
//! `TROUPE_GROUP_KILLS` sets the number of kills (6 by default), and `TROUPE_GROUP_ITEMS` the number of items (60).

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    net::SocketAddr,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    process::{Child, Command},
    time::sleep,
};
use troupe_proto::supervisor::v1::{
    AppendTranscriptRequest, CancelGroupRequest, CreateGroupRequest, CreateSessionRequest, GetGroupRequest, Group,
    GroupItem, GroupItemOutcome, GroupState, ListTranscriptRequest, RestartPolicy, SpawnAgentRequest, StatusKind,
    TranscriptEntry, TranscriptKind, event::Kind,
};
use troupe_tests::{
    client::{self, Supervisor},
    process::troupe,
    rng::Rng,
    service::{Ground, Service},
    tree::{Tree, kind},
    within,
};

use crate::number_from;

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

/// Reads a group across restarts of the service.
async fn group(client: &Supervisor, session: &str, name: &str) -> Option<Group> {
    let request = GetGroupRequest {
        session_id: session.to_owned(),
        name: name.to_owned(),
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

/// Waits until the group is as expected and returns it.
async fn group_that(client: &Supervisor, session: &str, name: &str, is_expected: impl Fn(&Group) -> bool) -> Group {
    let found = async {
        loop {
            match group(client, session, name).await {
                Some(group) if is_expected(&group) => return group,
                _ => sleep(Duration::from_millis(100)).await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(120), found)
        .await
        .expect("the group reaches the expected state")
}

async fn open(service: &Service) -> Tree {
    let request = CreateSessionRequest {
        restart_policy: RestartPolicy::OnLost.into(),
        ..CreateSessionRequest::default()
    };
    Tree::open(service.client(), request).await
}

async fn create(tree: &Tree, name: &str, message: &str, items: usize) {
    let item = |number: usize| GroupItem {
        key: number.to_string(),
        ..GroupItem::default()
    };
    let request = CreateGroupRequest {
        session_id: tree.session.clone(),
        name: name.to_owned(),
        template: Some(SpawnAgentRequest {
            agent_type: String::from("worker"),
            message: Some(message.to_owned()),
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
}

/// Appends numbered entries to the transcript of the root. Each entry is repeated until it is acknowledged. Stops when
/// `address` is empty and returns the number of entries.
async fn append_entries(address: Arc<Mutex<Option<SocketAddr>>>, session: String) -> u64 {
    let mut batch = 0;
    loop {
        let Some(address) = *address.lock().unwrap() else {
            return batch;
        };
        let request = AppendTranscriptRequest {
            session_id: session.clone(),
            batch: batch + 1,
            entries: vec![TranscriptEntry {
                kind: TranscriptKind::Message.into(),
                text: (batch + 1).to_string(),
                ..TranscriptEntry::default()
            }],
            ..AppendTranscriptRequest::default()
        };
        match client::supervisor(address, None).append_transcript(request).await {
            Ok(_) => batch += 1,
            // The service is being restarted.
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}

async fn transcript(tree: &Tree, thread: &str) -> Vec<TranscriptEntry> {
    let mut request = ListTranscriptRequest {
        session_id: tree.session.clone(),
        thread_id: thread.to_owned(),
        page_size: 1_000,
        ..ListTranscriptRequest::default()
    };
    let mut entries = Vec::new();
    loop {
        let page = within("ListTranscript", tree.client().list_transcript(request.clone())).await;
        let page = page.unwrap().into_inner();
        entries.extend(page.entries);
        if page.next_page_token.is_empty() {
            return entries;
        }
        request.page_token = page.next_page_token;
    }
}

/// Returns the processes whose environment contains the home directory, except the runner.
fn agents(home: &Path, runner: Option<u32>) -> Vec<u32> {
    let is_of_home = |process: &u32| {
        let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        let home = home.as_os_str().as_bytes();
        environment.windows(home.len()).any(|part| part == home)
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(is_of_home).filter(|id| Some(*id) != runner).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn group_survives_kills_of_supervisor_and_runner() {
    let kills = number_from("TROUPE_GROUP_KILLS", 6);
    let items = number_from("TROUPE_GROUP_ITEMS", 60);
    let ground = Ground::new().await;
    let home = tempfile::tempdir().unwrap();
    let mut service = ground.start(LIMITS).await;
    let mut runner = Runner::start(service.address(), home.path());
    let tree = open(&service).await;
    create(&tree, "g", "Do {key}.", items).await;
    let session = tree.session.clone();
    let address = Arc::new(Mutex::new(Some(service.address())));
    let appending = tokio::spawn(append_entries(Arc::clone(&address), session.clone()));
    let mut rng = Rng::new(7, "kills");
    let mut done = 0;
    while done < kills {
        sleep(Duration::from_millis(100 + rng.below(300))).await;
        if group(&service.client(), &session, "g")
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
    let ended = group_that(&client, &session, "g", has_ended).await;
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
    for thread in threads.iter().filter(|thread| thread.depth == 1) {
        let entries = transcript(&tree, &thread.thread_id).await;
        assert!(
            entries.iter().map(|entry| entry.number).eq(1..=entries.len() as u64),
            "{entries:?}"
        );
        let of_runner = entries.iter().filter(|entry| entry.kind() != TranscriptKind::Notice);
        let identities = of_runner.map(|entry| (entry.generation, entry.turn, entry.kind, &entry.text));
        let (all, distinct): (Vec<_>, BTreeSet<_>) = identities.map(|identity| (identity, identity)).unzip();
        assert_eq!(all.len(), distinct.len(), "an entry is stored twice: {entries:?}");
    }
    *address.lock().unwrap() = None;
    let appended = within("the last append", appending).await.unwrap();
    let texts = transcript(&tree, &tree.root).await.into_iter().map(|entry| entry.text);
    assert!(
        texts.eq((1..=appended).map(|number| number.to_string())),
        "{appended} entries"
    );

    leave_no_agent(&ground, service, runner, &tree, home.path()).await;
}

/// Cancels a group while its agents work, and kills the runner and the supervisor in the meantime.
async fn leave_no_agent(ground: &Ground, mut service: Service, mut runner: Runner, tree: &Tree, home: &Path) {
    create(tree, "h", "hold", 40).await;
    let running = group_that(&service.client(), &tree.session, "h", |group| {
        group.running == CONCURRENCY
    })
    .await;
    let of_home = |is_expected: fn(usize) -> bool, process| async move {
        while !is_expected(agents(home, process).len()) {
            sleep(Duration::from_millis(50)).await;
        }
    };
    within(
        "the agents",
        of_home(|agents| agents >= CONCURRENCY as usize, runner.process.id()),
    )
    .await;
    runner.kill().await;
    let request = CancelGroupRequest {
        request_id: String::from("cancel"),
        session_id: tree.session.clone(),
        group_id: running.spec.unwrap().group_id,
        ..CancelGroupRequest::default()
    };
    within("CancelGroup", service.client().cancel_group(request))
        .await
        .unwrap();
    let address = service.address().to_string();
    service.kill().await;
    service = ground.start_at(&address, LIMITS).await;
    runner.start_again();
    let ended = group_that(&service.client(), &tree.session, "h", has_ended).await;
    assert_eq!(
        (ended.state(), ended.cancelled),
        (GroupState::Cancelled, 40),
        "{ended:?}"
    );
    within(
        "the end of the agents",
        of_home(|agents| agents == 0, runner.process.id()),
    )
    .await;
    runner.kill().await;
    service.kill().await;
}
