//! Members of a cluster that are killed, frozen and stopped at random while many clients write.
//!
//! `TROUPE_CLUSTER_FAULTS` sets the number of faults, `TROUPE_CLUSTER_FAILOVERS` the number of failovers of the
//! database, and `TROUPE_CLUSTER_WRITERS` the number of writers. With `TROUPE_CLUSTER_KILLS=1`, every fault is a `kill
//! -9`. `TROUPE_SEED` repeats a run. `TROUPE_CLUSTER_OUTAGE` sets the duration of the database's outage in seconds.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    task::{JoinSet, block_in_place},
    time::{Instant, interval, sleep, timeout},
};
use tonic::{Code, Request};
use troupe_proto::supervisor::v1::{CreateSessionRequest, SetThreadNoteRequest, event::Kind};
use troupe_tests::{client::Supervisor, events::assert_whole, postgres_server::Server, rng::Rng, tree::Tree, within};

use crate::{cluster::Members, number_from, seed};

const MEMBERS: usize = 3;

/// Time after which a writer without a response calls another member.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// A fault of a member.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill,
    Freeze(Duration),
    Terminate,
}

impl Fault {
    fn random(rng: &mut Rng, only_kills: bool) -> Self {
        match rng.below(3) {
            _ if only_kills => Self::Kill,
            0 => Self::Kill,
            1 => Self::Freeze(Duration::from_millis(500 + rng.below(8_000))),
            _ => Self::Terminate,
        }
    }
}

impl Fault {
    async fn inject(self, members: &mut Members, index: usize) {
        match self {
            Self::Kill => members.take(index).kill().await,
            Self::Freeze(_) => members.member(index).freeze(),
            Self::Terminate => drop(members.take(index).terminate().await),
        }
    }
}

/// A client that sets the note of its session's root to 1, 2, 3, and so on. It tries each note through one member after
/// the other until the note is acknowledged.
struct Writer {
    tree: Tree,
    clients: Vec<Supervisor>,
    acknowledged: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Writer {
    /// Writes until it is stopped. Returns the longest time between two acknowledgements.
    async fn write(self) -> Duration {
        let (mut last, mut longest, mut next) = (Instant::now(), Duration::ZERO, 0);
        for number in 1.. {
            if self.stop.load(Ordering::Acquire) {
                return longest;
            }
            loop {
                next = (next + 1) % self.clients.len();
                let mut request = Request::new(SetThreadNoteRequest {
                    session_id: self.tree.session.clone(),
                    thread_id: self.tree.root.clone(),
                    thread_note: number.to_string(),
                    request_id: number.to_string(),
                });
                request.set_timeout(ANSWER_WITHIN);
                let answer = timeout(ANSWER_WITHIN * 2, self.clients[next].clone().set_thread_note(request)).await;
                match answer {
                    Ok(Ok(_)) => break,
                    Ok(Err(status)) if is_transient(status.code()) => sleep(Duration::from_millis(20)).await,
                    Ok(Err(status)) => panic!("{status}"),
                    Err(_) => {}
                }
            }
            longest = longest.max(last.elapsed());
            last = Instant::now();
            self.acknowledged.store(number, Ordering::Release);
        }
        longest
    }
}

/// Returns whether the call can be made again: it failed because of the member or its connection.
fn is_transient(code: Code) -> bool {
    matches!(
        code,
        Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded | Code::Internal
    )
}

/// Checks that a session's log has each note from 1 to `acknowledged` once and in order, and at most one note after
/// these. Returns the number of events.
async fn check(tree: &Tree, acknowledged: u64) -> u64 {
    let events = tree.log().await;
    assert_whole(&events);
    let mut expected = 1;
    for event in &events {
        if let Some(Kind::NoteSet(set)) = &event.kind {
            assert_eq!(
                set.thread_note,
                expected.to_string(),
                "a note is missing, repeated or out of order"
            );
            expected += 1;
        }
    }
    let found = expected - 1;
    assert!(
        (acknowledged..=acknowledged + 1).contains(&found),
        "{found} of {acknowledged}"
    );
    events.len() as u64
}

/// Clients that write to sessions of all members.
struct Load {
    trees: Vec<(Tree, Arc<AtomicU64>)>,
    running: JoinSet<Duration>,
    stop: Arc<AtomicBool>,
}

impl Load {
    async fn start(members: &Members) -> Self {
        let mut load = Self {
            trees: Vec::new(),
            running: JoinSet::new(),
            stop: Arc::new(AtomicBool::new(false)),
        };
        for number in 0..number_from("TROUPE_CLUSTER_WRITERS", 8_u64) {
            let first = usize::try_from(number).unwrap() % MEMBERS;
            let tree = Tree::open(members.client(first), CreateSessionRequest::default()).await;
            let acknowledged = Arc::new(AtomicU64::new(0));
            let writer = Writer {
                tree: tree.clone(),
                clients: (0..MEMBERS).map(|index| members.client(index)).collect(),
                acknowledged: Arc::clone(&acknowledged),
                stop: Arc::clone(&load.stop),
            };
            load.running.spawn(writer.write());
            load.trees.push((tree, acknowledged));
        }
        load
    }

    fn acknowledged(&self) -> Vec<u64> {
        let counts = self.trees.iter();
        counts.map(|(_, count)| count.load(Ordering::Acquire)).collect()
    }

    /// Waits until each writer has received two acknowledgements more than `before`. The second of these calls began
    /// after the fault.
    async fn progress(&self, before: &[u64]) {
        let mut polls = interval(Duration::from_millis(10));
        let progress = async {
            while !self
                .acknowledged()
                .iter()
                .zip(before)
                .all(|(now, before)| *now >= before + 2)
            {
                polls.tick().await;
            }
        };
        within("progress of all sessions", progress).await;
    }

    /// Stops the writers and checks the logs. Returns a description of the written events.
    async fn finish(mut self, members: &Members) -> String {
        self.stop.store(true, Ordering::Release);
        let mut longest = Duration::ZERO;
        while let Some(ended) = self.running.join_next().await {
            longest = longest.max(ended.unwrap());
        }
        let (mut events, acknowledged) = (0, self.acknowledged());
        for (index, ((tree, _), notes)) in self.trees.iter().zip(&acknowledged).enumerate() {
            events += check(&tree.by(members.client(index % MEMBERS)), *notes).await;
        }
        let acknowledged: u64 = acknowledged.iter().sum();
        format!("{acknowledged} acknowledged writes, {events} events; longest pause of a writer {longest:?}")
    }
}

/// Describes the durations from a fault until all sessions are writable again.
fn distribution(mut recoveries: Vec<Duration>) -> String {
    recoveries.sort_unstable();
    let (count, last) = (recoveries.len(), recoveries.len().saturating_sub(1));
    let at = |percent: usize| recoveries.get(last * percent / 100).copied().unwrap_or_default();
    format!("p50 {:?}, p99 {:?}, at most {:?} of {count}", at(50), at(99), at(100))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_faults_of_members_lose_nothing() {
    let faults = number_from("TROUPE_CLUSTER_FAULTS", 4);
    let mut rng = Rng::new(seed("TROUPE_SEED"), "faults");
    let mut members = Members::start(MEMBERS).await;
    members.know_each_other().await;
    let load = Load::start(&members).await;
    let only_kills = number_from("TROUPE_CLUSTER_KILLS", 0_u64) > 0;
    let mut recoveries = Vec::new();
    for number in 0..faults {
        let fault = Fault::random(&mut rng, only_kills);
        let index = usize::try_from(rng.below(MEMBERS as u64)).unwrap();
        sleep(Duration::from_millis(rng.below(1_000))).await;
        let owns_sessions = members.owns_sessions(index);
        let (begun, before) = (Instant::now(), load.acknowledged());
        fault.inject(&mut members, index).await;
        // Every session is writable again, through the other members.
        load.progress(&before).await;
        let recovered = begun.elapsed();
        if matches!(fault, Fault::Kill) && owns_sessions {
            recoveries.push(recovered);
        }
        println!("fault {number}: {fault:?} of member {index}, recovered in {recovered:?}");
        if let Fault::Freeze(duration) = fault {
            sleep(duration.saturating_sub(recovered)).await;
            members.member(index).thaw();
            within("the end or the return of the member", settled(&mut members, index)).await;
        }
        if !matches!(fault, Fault::Freeze(_)) || members.has_ended(index) {
            members.restart(index).await;
        }
        members.know_each_other().await;
    }
    println!("{faults} faults, {}", load.finish(&members).await);
    println!(
        "recovery after kill -9 of a member with sessions: {}",
        distribution(recoveries)
    );
}

/// The database's primary is killed and its standby promoted. In two of three cases, a member is killed or frozen at
/// the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failovers_of_database_lose_nothing() {
    let failovers = number_from("TROUPE_CLUSTER_FAILOVERS", 2);
    let mut rng = Rng::new(seed("TROUPE_SEED"), "failovers");
    let mut members = Members::at(Server::start(&[]), MEMBERS).await;
    members.know_each_other().await;
    let load = Load::start(&members).await;
    let mut recoveries = Vec::new();
    for number in 0..failovers {
        let standby = block_in_place(|| {
            let standby = members.server().standby();
            members.server().wait_for_standby();
            standby
        });
        load.progress(&load.acknowledged()).await;
        let (begun, before) = (Instant::now(), load.acknowledged());
        let index = usize::try_from(rng.below(MEMBERS as u64)).unwrap();
        let fault = match rng.below(3) {
            0 => Some(Fault::Kill),
            1 => Some(Fault::Freeze(Duration::ZERO)),
            _ => None,
        };
        if let Some(fault) = fault {
            fault.inject(&mut members, index).await;
        }
        block_in_place(|| {
            members.server().crash();
            standby.promote();
            members.move_database(standby);
        });
        load.progress(&before).await;
        println!("failover {number}: recovered in {:?}", begun.elapsed());
        recoveries.push(begun.elapsed());
        if matches!(fault, Some(Fault::Freeze(_))) {
            members.member(index).thaw();
            within("the end or the return of the member", settled(&mut members, index)).await;
        }
        if matches!(fault, Some(Fault::Kill)) || members.has_ended(index) {
            members.restart(index).await;
        }
        members.know_each_other().await;
    }
    println!("{failovers} failovers, {}", load.finish(&members).await);
    println!("recovery: {}", distribution(recoveries));
}

/// Waits until a member that was frozen has ended or sends heartbeats again.
async fn settled(members: &mut Members, index: usize) {
    let sql = format!("SELECT beats FROM members WHERE name = 'member-{index}'");
    let before = members.query(&sql);
    let mut polls = interval(Duration::from_millis(50));
    while !members.has_ended(index) {
        let present = members.query(&sql);
        if !present.trim().is_empty() && present != before {
            return;
        }
        polls.tick().await;
    }
}

/// No member is removed during an outage of the database. Calls succeed again after the outage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage_of_database_removes_no_member() {
    let outage = Duration::from_secs(number_from("TROUPE_CLUSTER_OUTAGE", 6));
    let mut members = Members::at(Server::start(&[]), MEMBERS).await;
    members.know_each_other().await;
    let tree = Tree::open(members.client(0), CreateSessionRequest::default()).await;
    let ids = |members: &Members| members.query("SELECT member FROM members ORDER BY member");
    let before = ids(&members);
    block_in_place(|| members.server().crash());
    sleep(outage).await;
    block_in_place(|| members.server().resume());
    let returned = Instant::now();
    for index in 0..MEMBERS {
        let writer = tree.by(members.client(index));
        let retried = async {
            let mut polls = interval(Duration::from_millis(50));
            while writer.try_spawn(writer.request("worker")).await.is_err() {
                polls.tick().await;
            }
        };
        Box::pin(within("a spawn after the outage", retried)).await;
    }
    println!(
        "calls succeed {:?} after the return of the database",
        returned.elapsed()
    );
    members.know_each_other().await;
    assert_eq!(ids(&members), before, "a member was removed");
    for index in 0..MEMBERS {
        assert!(!members.has_ended(index));
    }
    assert_whole(&tree.by(members.client(1)).log().await);
}
