//! One simulation: the hosts of a seed, their network, and its faults.

use std::{
    rc::Rc,
    sync::Arc,
    time::{Duration, SystemTime},
};

use supervisor_log::store::MemoryStore;
use supervisor_svc::{ClusterOptions, clock::Clock};
use svc_kit::shutdown::Shutdown;
use troupe_tests::rng::Rng;
use turmoil::{Builder, Sim};

use crate::{
    client,
    clock::SimulatedTime,
    conductor,
    faults::Faults,
    log::Log,
    registry, runner,
    shared::{CLIENTS, CONDUCTOR, Plan, REGISTRY, RUNNERS, SUPERVISOR, SharedState, WATCHER},
    supervisor::{self, Remains},
    watcher,
};

/// The start of every simulation, after the Unix epoch.
const BEGINNING: Duration = Duration::from_secs(1_900_000_000);

/// Interval at which turmoil advances the network.
const TICK: Duration = Duration::from_millis(5);

/// Maximum duration of a simulation, in simulated time. All work must have ended by then.
const LONGEST: Duration = Duration::from_secs(60);

/// Duration of a runner's lease.
const LEASE: Duration = Duration::from_millis(1_500);

/// Simulates a seed, checks the result and returns the log.
pub fn simulate(seed: u64) -> Log {
    let store = Arc::new(MemoryStore::new().unwrap());
    let plan = Plan {
        supervisors: &[SUPERVISOR],
        requests: 12,
        pause: 10..=120,
    };
    let shared = Rc::new(SharedState::new(plan, Arc::clone(&store)));
    let keys = tempfile::tempdir().unwrap();
    let remains = Remains {
        store: Arc::<MemoryStore>::clone(&store),
        clock: Clock::new(SimulatedTime::new(seed)),
        data_dir: keys.path().to_owned(),
        lease: LEASE,
        cluster: ClusterOptions::default(),
    };

    let mut sim = network(seed, LONGEST, TICK);
    sim.host(SUPERVISOR, move || supervisor::run(remains.clone(), Shutdown::new()));
    populate(&mut sim, seed, &shared);

    let mut faults = Faults::new(seed, Rc::clone(&shared));
    loop {
        faults.advance(&mut sim);
        match sim.step() {
            Ok(true) => break,
            Ok(false) => {}
            Err(error) => panic!("after {:?}: {error}", sim.elapsed()),
        }
    }
    let log = Log::of(&store);
    log.check(&shared);
    log
}

/// Adds all hosts except supervisors.
pub fn populate(sim: &mut Sim<'_>, seed: u64, shared: &Rc<SharedState>) {
    sim.host(REGISTRY, registry::run);
    for host in RUNNERS {
        let shared = Rc::clone(shared);
        sim.host(host, move || runner::run(host, seed, Rc::clone(&shared)));
    }
    for host in CLIENTS {
        sim.client(host, client::run(host, seed, Rc::clone(shared)));
    }
    sim.client(WATCHER, watcher::run(seed, Rc::clone(shared)));
    sim.client(CONDUCTOR, conductor::run(seed, Rc::clone(shared)));
}

/// Creates the network of a seed, which determines the delays and the rate of broken links.
pub fn network<'s>(seed: u64, longest: Duration, tick: Duration) -> Sim<'s> {
    let mut rng = Rng::new(seed, "network");
    let slowest = rng.millis(10..=60);
    let fail_rate = rng.pick(&[0.0, 0.001, 0.004]);
    Builder::new()
        .rng_seed(seed)
        .epoch(SystemTime::UNIX_EPOCH + BEGINNING)
        .simulation_duration(longest)
        .tick_duration(tick)
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(slowest)
        .fail_rate(fail_rate)
        .repair_rate(0.3)
        // Maximum number of segments in transit on one connection: more than can be lost before the connection is
        // closed.
        .tcp_capacity(4_096)
        .enable_random_order()
        .build()
}
