//! One simulation of three supervisors.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    error::Error,
    rc::Rc,
    sync::{Arc, Mutex},
    time::Duration,
};

use supervisor_log::store::{MemberId, MemoryStore};
use supervisor_svc::{ClusterOptions, RunError, clock::Clock};
use svc_kit::shutdown::Shutdown;
use tokio::sync::Notify;
use troupe_tests::rng::Rng;
use turmoil::Sim;
use uuid::Uuid;

use super::{
    check,
    faults::Faults,
    reader::{self, READER, Read},
    store::{Link, MemberStore},
};
use crate::{
    clock::SimulatedTime,
    log::Log,
    net,
    shared::{Plan, SharedState},
    supervisor::{self, Remains},
    world::{network, populate},
};

/// The hosts of the supervisors.
pub const SUPERVISORS: [&str; 3] = ["supervisor-1", "supervisor-2", "supervisor-3"];

/// Interval at which turmoil advances the network. Longer than with one supervisor, because a simulation is longer.
const TICK: Duration = Duration::from_millis(10);

/// Maximum duration of a simulation, in simulated time.
const LONGEST: Duration = Duration::from_secs(120);

/// Duration of a runner's lease. It is longer than a simulation, so that losing a program of a living runner is always
/// an error.
const LEASE: Duration = Duration::from_secs(600);

/// State that the machines of the supervisors share with the faults.
#[derive(Default)]
pub struct Machines {
    /// The connection of each supervisor to the log.
    pub links: BTreeMap<&'static str, Arc<Link>>,
    /// Tells the current process of each supervisor to drain.
    pub drains: RefCell<BTreeMap<&'static str, Arc<Notify>>>,
}

/// The result of a simulation.
pub struct History {
    shared: Rc<SharedState>,
    reads: Rc<RefCell<Vec<Read>>>,
}

impl History {
    /// Returns the log.
    pub fn log(&self) -> Log {
        Log::of(&self.shared.store)
    }

    /// Checks that the log agrees with everything that the hosts observed, and violates no rule.
    pub fn check(&self) {
        let log = self.log();
        check::check(&log, &self.shared, &self.reads.borrow());
        log.check(&self.shared);
    }
}

/// Simulates a seed, with or without the fence of the log.
pub fn simulate(seed: u64, has_fence: bool) -> History {
    let store = Arc::new(MemoryStore::new().unwrap());
    if !has_fence {
        store.remove_fence();
    }
    let plan = Plan {
        supervisors: &SUPERVISORS,
        requests: 14,
        pause: 50..=1_200,
    };
    let shared = Rc::new(SharedState::new(plan, Arc::clone(&store)));
    let reads = Rc::new(RefCell::new(Vec::new()));
    let keys = tempfile::tempdir().unwrap();
    let clock = Clock::new(SimulatedTime::new(seed));
    let links = SUPERVISORS.map(|host| (host, Arc::new(Link::new(seed, host))));
    let machines = Rc::new(Machines {
        links: links.into_iter().collect(),
        ..Machines::default()
    });

    let mut sim = network(seed, LONGEST, TICK);
    let ids = Arc::new(Mutex::new(Rng::new(seed, "members")));
    for host in SUPERVISORS {
        let (machines, ids, store) = (Rc::clone(&machines), Arc::clone(&ids), Arc::clone(&store));
        let (clock, data_dir) = (clock.clone(), keys.path().to_owned());
        sim.host(host, move || {
            let drain = Arc::new(Notify::new());
            machines.drains.borrow_mut().insert(host, Arc::clone(&drain));
            let id = MemberId::from_uuid(Uuid::from_u64_pair(ids.lock().unwrap().number(), 0));
            let remains = Remains {
                store: Arc::new(MemberStore::new(
                    store.another_as(id),
                    Arc::clone(&machines.links[host]),
                )),
                clock: clock.clone(),
                data_dir: data_dir.clone(),
                lease: LEASE,
                cluster: ClusterOptions {
                    member_name: Some(host.to_owned()),
                    cluster_address: Some(net::url(host)),
                    ..ClusterOptions::default()
                },
            };
            async move {
                let shutdown = Shutdown::new();
                let triggered = shutdown.clone();
                tokio::spawn(async move {
                    drain.notified().await;
                    triggered.trigger();
                });
                ended(supervisor::run(remains, shutdown).await)
            }
        });
    }
    populate(&mut sim, seed, &shared);
    sim.client(READER, reader::run(seed, Rc::clone(&shared), Rc::clone(&reads)));

    let mut faults = Faults::new(seed, Rc::clone(&shared), machines);
    run(&mut sim, &mut faults);
    History { shared, reads }
}

fn run(sim: &mut Sim<'_>, faults: &mut Faults) {
    loop {
        faults.advance(sim);
        match sim.step() {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => panic!("after {:?}: {error}", sim.elapsed()),
        }
    }
}

/// Accepts the reasons for which a process may end and is started again. An unknown outcome of a write is not accepted,
/// because every write of a simulation has a known outcome.
fn ended(result: turmoil::Result) -> turmoil::Result {
    let is_expected = |error: &(dyn Error + 'static)| match error.downcast_ref::<RunError>() {
        Some(RunError::Removed | RunError::Join(_)) => true,
        Some(RunError::OutcomeUnknown | RunError::Serve(_)) => false,
        // The process could not reach the log at its start.
        None => true,
    };
    match result {
        Err(error) if !is_expected(error.as_ref()) => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
