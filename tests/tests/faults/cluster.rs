//! Several supervisors over one PostgreSQL database, as real processes.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use prost::Message as _;
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{Instant, interval, sleep},
};
use tokio_util::sync::CancellationToken;
use tonic::{
    Code, Request, Status,
    body::Body,
    codegen::{Body as _, http},
};
use tower::ServiceExt as _;
use troupe_proto::{
    fault::reason_of,
    reason::Reason,
    supervisor::v1::{
        CreateSessionRequest, DrainMemberRequest, GetSessionRequest, ListMembersRequest, ListSessionsRequest, Member,
        MemberState, MoveSessionRequest, SpawnAgentRequest, StatusKind, TurnOutcome, WaitAgentsRequest,
        WatchSessionsRequest, event::Kind as EventKind, watch_threads_response::Message,
    },
};
use troupe_tests::{
    UNKNOWN,
    client::{self, Runners},
    events::assert_whole,
    postgres_server::{Address, Database, Server},
    runner::{Attempt, Runner, ended, hello},
    service::{Ground, Service},
    tree::{Tree, kind},
    watch::Watch,
    within,
};

use crate::{number_from, spawn, threads};

/// The location of the log.
enum Log {
    /// A database of the server that all tests share.
    Shared(Database),
    /// A database of a server that the test controls.
    Own {
        primary: Server,
        address: Address,
        name: String,
    },
}

/// Members over one database. Each member has its own data directory.
pub struct Members {
    log: Log,
    grounds: Vec<Ground>,
    services: Vec<Option<Service>>,
    /// The addresses, which stay the same.
    addresses: Vec<Option<SocketAddr>>,
}

impl Members {
    /// Starts this many members.
    pub async fn start(count: usize) -> Self {
        Self::over(Log::Shared(Database::create()), count).await
    }

    /// Starts this many members over a new database of a server.
    pub async fn at(primary: Server, count: usize) -> Self {
        let (address, name) = (Address::of(&primary), primary.create_database());
        Self::over(Log::Own { primary, address, name }, count).await
    }

    async fn over(log: Log, count: usize) -> Self {
        let mut members = Self {
            log,
            grounds: Vec::new(),
            services: Vec::new(),
            addresses: Vec::new(),
        };
        for index in 0..count {
            members.grounds.push(Ground::new().await);
            members.services.push(None);
            members.addresses.push(None);
            members.restart(index).await;
        }
        members
    }

    /// Starts a member again after its end.
    pub async fn restart(&mut self, index: usize) {
        let (url, name) = (self.url(), format!("member-{index}"));
        let arguments = ["--store", &url, "--member-name", &name, "--max-threads", "1000"];
        let address = self.addresses[index].map_or_else(|| String::from("127.0.0.1:0"), |at| at.to_string());
        let service = self.grounds[index].start_at(&address, &arguments).await;
        self.addresses[index] = Some(service.address());
        self.services[index] = Some(service);
    }

    /// Returns a running member.
    pub fn member(&self, index: usize) -> &Service {
        self.services[index].as_ref().unwrap()
    }

    /// Removes and returns a member, so that the test can end it.
    pub fn take(&mut self, index: usize) -> Service {
        self.services[index].take().unwrap()
    }

    /// Returns whether the process of a member has ended.
    pub fn has_ended(&mut self, index: usize) -> bool {
        self.services[index].as_mut().unwrap().has_ended()
    }

    fn url(&self) -> String {
        match &self.log {
            Log::Shared(database) => database.url(),
            Log::Own { address, name, .. } => address.url(name),
        }
    }

    /// Runs SQL in the database.
    pub fn query(&self, sql: &str) -> String {
        match &self.log {
            Log::Shared(database) => database.run(sql),
            Log::Own { primary, name, .. } => primary.run(name, sql),
        }
    }

    /// Returns the database server, which the test controls.
    pub fn server(&self) -> &Server {
        match &self.log {
            Log::Own { primary, .. } => primary,
            Log::Shared(_) => panic!("other tests use this server"),
        }
    }

    /// Moves the address of the database to another server. Ends the earlier server.
    pub fn move_database(&mut self, server: Server) {
        match &mut self.log {
            Log::Own { primary, address, .. } => {
                address.move_to(&server);
                *primary = server;
            }
            Log::Shared(_) => panic!("other tests use this server"),
        }
    }

    /// Returns a client of a member.
    pub fn client(&self, index: usize) -> client::Supervisor {
        self.member(index).client()
    }

    /// Waits until each member knows the others.
    pub async fn know_each_other(&self) {
        self.know(self.services.iter().flatten().count()).await;
    }

    /// Waits until this number of members know each other.
    async fn know(&self, count: usize) {
        let mut polls = interval(Duration::from_millis(50));
        within("the members", async {
            while self.query("SELECT count(*) FROM members WHERE beats > 2").trim() != count.to_string() {
                polls.tick().await;
            }
        })
        .await;
    }

    /// Returns whether a member owns sessions.
    pub fn owns_sessions(&self, index: usize) -> bool {
        let sql = format!(
            "SELECT count(*) FROM sessions AS s JOIN members AS m ON m.member = s.owner WHERE m.name = 'member-{index}'"
        );
        self.query(&sql).trim() != "0"
    }

    /// Returns the name of the member that owns a session.
    fn owner(&self, session: &str) -> String {
        let sql = format!(
            "SELECT m.name FROM sessions AS s JOIN members AS m ON m.member = s.owner WHERE s.session = '{session}'"
        );
        self.query(&sql).trim().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_member_serves_every_session() {
    let members = Members::start(3).await;
    members.know_each_other().await;
    let tree = Tree::open(members.client(0), CreateSessionRequest::default()).await;
    assert_eq!(members.owner(&tree.session), "member-0");
    let [first, second, third] = [0, 1, 2].map(|index| tree.by(members.client(index)));
    let mut watch = third.watch().await;
    let thread = spawn(&second, String::from("a")).await.unwrap();
    assert_eq!(
        spawn(&third, String::from("a")).await.unwrap(),
        thread,
        "a repeated request"
    );
    assert_eq!(threads(&first).await, threads(&third).await);
    assert!(threads(&second).await.contains(&thread));
    watch.until(|event| event.thread_id == thread).await;
    assert_whole(&third.log().await);
    assert_eq!(
        members.owner(&tree.session),
        "member-0",
        "no other member took over the session"
    );

    // Messages of any length, concurrent calls and errors work equally through any member.
    for length in [10, 100_000] {
        second.send(&thread, &"x".repeat(length)).await;
    }
    let mut calls = JoinSet::new();
    for number in 0..64 {
        let (tree, thread) = ([&second, &third][number % 2].clone(), thread.clone());
        calls.spawn(async move { tree.note(&thread, &number.to_string()).await });
    }
    calls.join_all().await;
    let unknown = SpawnAgentRequest {
        session_id: tree.session.clone(),
        parent_thread_id: UNKNOWN.to_owned(),
        agent_type: "worker".to_owned(),
        ..SpawnAgentRequest::default()
    };
    let refused = first.try_spawn(unknown.clone()).await.unwrap_err();
    let forwarded = second.try_spawn(unknown.clone()).await.unwrap_err();
    assert_eq!(reason_of(&refused), Some(Reason::ThreadNotFound));
    assert_eq!(
        (refused.code(), refused.message(), refused.details()),
        (forwarded.code(), forwarded.message(), forwarded.details())
    );

    // An error consists of headers only. Not every client checks this.
    for index in 0..3 {
        let channel = client::endpoint(members.member(index).address()).connect().await;
        let message = unknown.encode_to_vec();
        let mut body = vec![0];
        body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        body.extend(message);
        let body = String::from_utf8(body).unwrap();
        let request = http::Request::post("/troupe.supervisor.v1.AgentSupervisorService/SpawnAgent")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Body::new(body))
            .unwrap();
        let response = channel.unwrap().oneshot(request).await.unwrap();
        assert_eq!(response.headers()["grpc-status"], "5", "by member {index}");
        assert!(response.body().is_end_stream(), "by member {index}");
    }

    // A token of one member is valid at the others.
    let mut by_thread = client::supervisor(members.member(1).address(), Some(&tree.root_token));
    let request = GetSessionRequest {
        session_id: tree.session.clone(),
    };
    by_thread.get_session(request).await.unwrap();

    // A listing contains the current state of a session that another member has in memory.
    let other = Tree::open(members.client(1), CreateSessionRequest::default()).await;
    spawn(&other.by(members.client(2)), String::from("b")).await.unwrap();
    for index in 0..3 {
        let listed = members
            .client(index)
            .list_sessions(ListSessionsRequest::default())
            .await;
        let listed = listed.unwrap().into_inner().sessions;
        let found: BTreeSet<_> = listed.iter().map(|session| session.session_id.clone()).collect();
        assert_eq!(found, BTreeSet::from([tree.session.clone(), other.session.clone()]));
        let listed = listed
            .iter()
            .find(|session| session.session_id == other.session)
            .unwrap();
        assert_eq!(listed.sequence, other.now().await.sequence, "by member {index}");
    }

    // A thread learns nothing about another session, even at a member that knows its owner.
    threads(&tree.by(members.client(1))).await;
    let elsewhere = GetSessionRequest {
        session_id: tree.session,
    };
    let unknown = GetSessionRequest {
        session_id: UNKNOWN.to_owned(),
    };
    let mut stranger = client::supervisor(members.member(1).address(), Some(&other.root_token));
    let refused = stranger.get_session(elsewhere).await.unwrap_err();
    let not_found = stranger.get_session(unknown).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (not_found.code(), not_found.message())
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_of_killed_member_are_taken_over() {
    let mut members = Members::start(3).await;
    members.know_each_other().await;
    let tree = Tree::open(members.client(0), CreateSessionRequest::default()).await;
    let mut acknowledged = BTreeSet::new();
    for number in 0..20 {
        let by = tree.by(members.client(number % 3));
        acknowledged.insert(spawn(&by, number.to_string()).await.unwrap());
    }
    members.take(0).kill().await;
    let killed = Instant::now();
    let tree = tree.by(members.client(1));
    acknowledged.insert(spawn(&tree, String::from("after")).await.unwrap());
    println!("a call succeeded {:?} after the kill", killed.elapsed());
    assert!(threads(&tree).await.is_superset(&acknowledged));
    assert_whole(&tree.log().await);
    members.restart(0).await;
    let tree = tree.by(members.client(0));
    assert!(threads(&tree).await.is_superset(&acknowledged));
}

/// Reads a message of a watch, and checks that the sequences of its events are consecutive. Returns false if the stream
/// was lost.
async fn follow(watch: &mut Watch, position: &mut u64) -> bool {
    match watch.next().await {
        Ok(Some(message)) => {
            if let Some(Message::Event(event)) = message.message {
                assert_eq!(event.sequence, *position + 1, "a gap in a watch");
                *position = event.sequence;
            }
            true
        }
        Err(status) if is_lost(&status) => false,
        other => panic!("{other:?}"),
    }
}

/// Watches a session until the event with the sequence `end` is received, and resumes the watch each time its stream
/// ends. Checks that the sequences of the events are consecutive.
async fn watch_until(tree: Tree, end: Arc<AtomicU64>) {
    let mut position = tree.head().await;
    loop {
        let mut watch = tree.watch_after(position).await;
        while follow(&mut watch, &mut position).await {
            if position >= end.load(Ordering::Acquire) {
                return;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolling_restart_fails_no_call() {
    const MEMBERS: usize = 3;
    let mut members = Members::start(MEMBERS).await;
    members.know_each_other().await;
    let mut trees = Vec::new();
    for index in 0..2 * MEMBERS {
        let client = members.client(index % MEMBERS);
        trees.push(Tree::open(client, CreateSessionRequest::default()).await);
    }
    for restarted in 0..MEMBERS {
        let stop = CancellationToken::new();
        let (mut writers, mut watchers) = (JoinSet::new(), JoinSet::new());
        let mut ends = Vec::new();
        for (number, tree) in trees.iter().enumerate() {
            // No client calls the member that restarts, because a client of a stopped process needs another address.
            let through = (restarted + 1 + number % (MEMBERS - 1)) % MEMBERS;
            let (tree, stop) = (tree.by(members.client(through)), stop.clone());
            let end = Arc::new(AtomicU64::new(u64::MAX));
            watchers.spawn(watch_until(tree.clone(), Arc::clone(&end)));
            ends.push((tree.clone(), end));
            writers.spawn(async move {
                let mut acknowledged = Vec::new();
                while !stop.is_cancelled() {
                    let request_id = format!("{restarted}-{}", acknowledged.len());
                    acknowledged.push(spawn(&tree, request_id).await.unwrap());
                }
                (tree, acknowledged)
            });
        }
        assert!(members.take(restarted).terminate().await.success());
        members.restart(restarted).await;
        members.know_each_other().await;
        stop.cancel();
        while let Some(ended) = writers.join_next().await {
            let (tree, acknowledged) = ended.unwrap();
            let found = threads(&tree).await;
            assert!(acknowledged.iter().all(|thread| found.contains(thread)));
            assert_whole(&tree.log().await);
        }
        for (tree, end) in ends {
            end.store(tree.head().await, Ordering::Release);
            // A watcher that has already received the last event checks `end` only after another event.
            spawn(&tree, format!("{restarted}-last")).await.unwrap();
        }
        while let Some(watched) = within("the end of the watches", watchers.join_next()).await {
            watched.unwrap();
        }
    }
}

/// Returns whether a stream failed because its member ended it or the connection to the member broke.
fn is_lost(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled)
}

/// `TROUPE_CLUSTER_FREEZE` sets the number of seconds for which the member stays frozen after the takeover of its
/// session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_member_never_answers_with_stale_state() {
    let members = Members::start(2).await;
    members.know_each_other().await;
    let tree = Tree::open(members.client(0), CreateSessionRequest::default()).await;
    let (frozen, living) = (tree.clone(), tree.by(members.client(1)));
    spawn(&frozen, String::from("before")).await.unwrap();
    let mut watch = frozen.watch_after(frozen.head().await).await;
    members.member(0).freeze();
    let get = || GetSessionRequest {
        session_id: tree.session.clone(),
    };
    let asked = {
        let (mut client, request) = (frozen.client(), get());
        tokio::spawn(async move { client.get_session(request).await })
    };
    let thread = spawn(&living, String::from("during")).await.unwrap();
    let sequence = living.head().await;
    assert_eq!(members.owner(&tree.session), "member-1");
    sleep(Duration::from_secs(number_from("TROUPE_CLUSTER_FREEZE", 0))).await;
    members.member(0).thaw();
    // The member was removed. It ends, or responds with an error before it ends.
    match within("an answer of the frozen member", asked).await.unwrap() {
        Ok(answer) => assert!(answer.into_inner().session.unwrap().sequence >= sequence, "stale"),
        Err(status) => assert!(is_lost(&status), "{status}"),
    }
    let mut client = frozen.client();
    match client.get_session(get()).await {
        Ok(answer) => assert!(answer.into_inner().session.unwrap().sequence >= sequence, "stale"),
        Err(status) => assert!(is_lost(&status), "{status}"),
    }
    if let Ok(listed) = client.list_sessions(ListSessionsRequest::default()).await {
        let listed = listed.into_inner().sessions;
        assert!(listed.iter().all(|session| session.sequence >= sequence), "stale");
    }
    // The watch continues without a gap, or ends with an error.
    let mut position = watch.position();
    while position < sequence && follow(&mut watch, &mut position).await {}
    assert!(threads(&living).await.contains(&thread));
    assert_whole(&living.log().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_members_may_name_another_caller() {
    let members = Members::start(1).await;
    let at = members.member(0).address();
    let mut forged = Request::new(ListSessionsRequest::default());
    forged
        .metadata_mut()
        .insert("troupe-principal", "admin.cm9vdA".parse().unwrap());
    let refused = client::supervisor(at, Some("a-token-that-is-wrong"))
        .list_sessions(forged)
        .await;
    assert_eq!(reason_of(&refused.unwrap_err()), Some(Reason::Unauthenticated));
    // Without a member's token, the header is ignored.
    let mut ignored = Request::new(ListSessionsRequest::default());
    ignored
        .metadata_mut()
        .insert("troupe-principal", "runner.eA".parse().unwrap());
    client::supervisor(at, None).list_sessions(ignored).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_move_and_members_drain() {
    const MOVES: usize = 20;
    let members = Members::start(3).await;
    members.know_each_other().await;
    let mut client = members.client(1);
    let tree = Tree::open(members.client(0), CreateSessionRequest::default()).await;
    let to = |name: &str| MoveSessionRequest {
        session_id: tree.session.clone(),
        name: name.to_owned(),
    };
    // A waiting call survives all moves.
    let awaited = spawn(&tree, String::from("awaited")).await.unwrap();
    let waiting = {
        let (mut client, session_id, thread) = (members.client(1), tree.session.clone(), awaited.clone());
        let request = WaitAgentsRequest {
            session_id,
            thread_ids: vec![thread],
            ..WaitAgentsRequest::default()
        };
        tokio::spawn(async move { client.wait_agents(request).await })
    };
    let mut durations = Vec::new();
    for number in 0..MOVES {
        let name = format!("member-{}", (number + 1) % 3);
        let begun = Instant::now();
        let moved = client.move_session(to(&name)).await.unwrap().into_inner();
        durations.push(begun.elapsed());
        assert_eq!(moved.name, name);
        assert_eq!(members.owner(&tree.session), name);
        let by = tree.by(members.client(number % 3));
        spawn(&by, number.to_string()).await.unwrap();
    }
    durations.sort_unstable();
    println!(
        "a move takes {:?}, at most {:?}",
        durations[MOVES / 2],
        durations[MOVES - 1]
    );
    let owner = members.owner(&tree.session);
    let moved = client.move_session(to("")).await.unwrap().into_inner();
    assert_ne!(moved.name, owner);
    let refused = client.move_session(to("nobody")).await.unwrap_err();
    assert_eq!(reason_of(&refused), Some(Reason::NotFound));
    assert!(refused.message().contains("member-0, member-1, member-2"), "{refused}");

    // The call reaches the member through another member.
    let owner = members.owner(&tree.session);
    let drain = DrainMemberRequest { name: owner.clone() };
    let index = (0..3).find(|index| format!("member-{index}") != owner).unwrap();
    let mut client = members.client(index);
    assert_eq!(client.drain_member(drain).await.unwrap().into_inner().sessions, 1);
    assert_ne!(members.owner(&tree.session), owner);
    let is_leaving = async {
        loop {
            let listed = client.list_members(ListMembersRequest {}).await.unwrap().into_inner();
            assert!(listed.database.unwrap().engine.starts_with("PostgreSQL "));
            assert_eq!(listed.members.len(), 3);
            let drained = listed.members.iter().find(|member| member.name == owner).unwrap();
            if drained.state() == MemberState::Leaving {
                return;
            }
        }
    };
    within("the drained member", is_leaving).await;
    let refused = client.move_session(to(&owner)).await.unwrap_err();
    assert_eq!(reason_of(&refused), Some(Reason::IllegalTransition), "{refused}");
    let drained: usize = owner.trim_start_matches("member-").parse().unwrap();
    let by = tree.by(members.client(drained));
    spawn(&by, String::from("after")).await.unwrap();
    // A new session is created at another member.
    let other = Tree::open(members.client(drained), CreateSessionRequest::default()).await;
    assert_ne!(members.owner(&other.session), owner);
    assert!(!waiting.is_finished());
    by.close(&awaited).await;
    within("the end of the wait", waiting).await.unwrap().unwrap();
    assert_whole(&by.log().await);
}

/// A draining member waits for a session that it is loading, and hands it over too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn draining_member_hands_over_what_it_loads() {
    const LOCK: &str = "BEGIN; LOCK TABLE requests IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(60)";
    const WAITING: &str = "SELECT count(*) FROM pg_stat_activity \
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    const UNLOCK: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
        WHERE datname = current_database() AND query LIKE 'BEGIN; LOCK%'";
    const LOCKED: &str = "SELECT count(*) FROM pg_locks JOIN pg_class ON pg_class.oid = relation \
        WHERE relname = 'requests' AND mode = 'AccessExclusiveLock' AND granted";
    let members = Arc::new(Members::start(3).await);
    members.know_each_other().await;
    let tree = Tree::open(members.client(0), CreateSessionRequest::default()).await;
    let until = async |sql: &str| {
        within(sql, async {
            while members.query(sql).trim() == "0" {
                sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    };
    // The statement ends with an error when the test terminates it. If the test fails earlier, the statement ends by
    // itself.
    let locker = Arc::clone(&members);
    let locked = tokio::task::spawn_blocking(move || locker.query(LOCK));
    until(LOCKED).await;
    let to = MoveSessionRequest {
        session_id: tree.session.clone(),
        name: String::from("member-1"),
    };
    let mut client = members.client(0);
    let moving = tokio::spawn(async move { client.move_session(to).await });
    until(WAITING).await;

    let mut client = members.client(2);
    let name = String::from("member-1");
    let drain = DrainMemberRequest { name };
    let draining = tokio::spawn(async move { client.drain_member(drain).await });
    let mut client = members.client(2);
    within("the member that leaves", async {
        loop {
            let listed = client.list_members(ListMembersRequest {}).await.unwrap().into_inner();
            let leaving = |member: &Member| member.state() == MemberState::Leaving;
            if listed.members.iter().any(leaving) {
                return;
            }
        }
    })
    .await;
    members.query(UNLOCK);
    locked.await.unwrap_err();
    moving.await.unwrap().unwrap();
    assert_eq!(draining.await.unwrap().unwrap().into_inner().sessions, 1);
    assert_ne!(members.owner(&tree.session), "member-1");
    tree.now().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_of_sessions_shows_changes_at_other_members() {
    let members = Members::start(2).await;
    members.know_each_other().await;
    let mut client = members.client(0);
    let watch = client.watch_sessions(WatchSessionsRequest::default()).await.unwrap();
    let mut watch = watch.into_inner();
    let tree = Tree::open(members.client(1), CreateSessionRequest::default()).await;
    spawn(&tree, String::from("a")).await.unwrap();
    let sequence = tree.head().await;
    within("the change in a watch elsewhere", async {
        loop {
            let message = watch.message().await.unwrap().expect("the watch continues");
            let session = message.session.unwrap_or_default();
            if session.session_id == tree.session && session.sequence >= sequence {
                return;
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_of_sessions_waits_until_a_killed_member_is_removed() {
    let mut members = Members::start(2).await;
    members.know_each_other().await;
    members.take(1).kill().await;
    let mut client = members.client(0);
    let watch = client.watch_sessions(WatchSessionsRequest::default()).await.unwrap();
    let first = within("the watch", watch.into_inner().message()).await;
    assert!(first.unwrap().unwrap().synced);
}

/// A member that sends heartbeats but does not answer the other members is not removed. A watch of all sessions ends
/// with the error SESSION_MOVING instead of omitting the sessions of that member.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_of_sessions_ends_if_a_member_does_not_answer() {
    let members = Members::start(1).await;
    // Connections to this listener are established, but nothing answers on them.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    let ground = Ground::new().await;
    let url = members.url();
    let arguments = [
        "--store",
        &url,
        "--member-name",
        "silent",
        "--cluster-address",
        &address,
    ];
    let _other = ground.start_at("127.0.0.1:0", &arguments).await;
    members.know(2).await;
    let mut client = members.client(0);
    let watch = client.watch_sessions(WatchSessionsRequest::default()).await.unwrap();
    let refused = within("the end", watch.into_inner().message()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!(reason_of(&refused), Some(Reason::SessionMoving));
}

/// A runner whose programs survive the end of its stream, as with `troupe run`.
struct MovingRunner {
    runner: Option<Runner>,
    attempts: Vec<Attempt>,
    /// A client of the supervisor to which the runner attaches.
    through: Runners,
}

impl MovingRunner {
    async fn attach(through: Runners) -> Self {
        Self {
            runner: Some(Runner::greet_by(through.clone(), hello("runner")).await),
            attempts: Vec::new(),
            through,
        }
    }

    /// Receives the start of a thread and begins its turn.
    async fn run(&mut self, thread: &str) {
        let runner = self.runner.as_mut().unwrap();
        // Supervisors without threads of the runner receive the heartbeat too.
        runner.beat().await;
        let attempt = runner.run(thread).await;
        self.attempts.push(attempt);
    }

    /// Completes a turn. Attaches again as often as the supervisors request it, and sends the report again.
    async fn complete(&mut self, index: usize) {
        const REPORT: u64 = 2;
        let attempt = self.attempts[index].clone();
        loop {
            let kind = ended(&attempt, TurnOutcome::Completed, "done");
            let mut runner = self.runner.take().unwrap();
            runner.beat().await;
            if runner.try_report(&attempt, REPORT, kind).await {
                self.runner = Some(runner);
                return;
            }
            let back = runner.come_back_by(self.through.clone(), &self.attempts).await;
            for verdict in &back.welcome().threads {
                assert!(verdict.go_on, "{verdict:?}");
            }
            self.runner = Some(back);
        }
    }
}

/// When the supervisors of their sessions end, the programs of a runner continue, and each report is applied once.
/// `TROUPE_CLUSTER_PROGRAMS` sets the number of programs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_survive_the_end_of_members() {
    let threads_of_each: usize = number_from("TROUPE_CLUSTER_PROGRAMS", 12) / 3;
    let mut members = Members::start(3).await;
    members.know_each_other().await;
    let mut runner = MovingRunner::attach(members.member(1).runners()).await;
    let mut trees = Vec::new();
    for index in 0..3 {
        let tree = Tree::open(members.client(index), CreateSessionRequest::default()).await;
        for number in 0..threads_of_each {
            let thread = spawn(&tree, number.to_string()).await.unwrap();
            runner.run(&thread).await;
        }
        trees.push(tree);
    }
    assert!(members.take(0).terminate().await.success());
    for index in 0..threads_of_each {
        runner.complete(index).await;
    }
    members.take(2).kill().await;
    for index in 2 * threads_of_each..3 * threads_of_each {
        runner.complete(index).await;
    }
    for index in threads_of_each..2 * threads_of_each {
        runner.complete(index).await;
    }
    for tree in trees {
        let tree = tree.by(members.client(1));
        let events = tree.log().await;
        assert_whole(&events);
        let mut turns = BTreeMap::<String, (usize, usize)>::new();
        for event in events {
            let turn = turns.entry(event.thread_id.clone()).or_default();
            match event.kind {
                Some(EventKind::TurnStarted(_)) => turn.0 += 1,
                Some(EventKind::TurnEnded(_)) => turn.1 += 1,
                _ => {}
            }
        }
        let once = turns.values().filter(|turn| **turn == (1, 1)).count();
        assert_eq!(once, threads_of_each, "{turns:?}");
        for thread in tree.threads().await.into_iter().filter(|thread| thread.depth > 0) {
            assert_eq!(kind(&thread), StatusKind::Completed, "{thread:?}");
            assert_eq!(thread.generation, 1, "no second attempt was started");
        }
    }
}
