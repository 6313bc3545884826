//! The faults and their times: broken links and dead machines. All faults end after a while.

use std::{collections::BTreeMap, rc::Rc, time::Duration};

use troupe_tests::rng::Rng;
use turmoil::Sim;

use crate::shared::{CLIENTS, CONDUCTOR, REGISTRY, RUNNERS, SUPERVISOR, SharedState, WATCHER};

/// Duration of the phase with faults.
const CHAOS: Duration = Duration::from_millis(2_500);

/// The hosts that connect to the supervisor.
const OTHERS: [&str; 7] = [
    REGISTRY, RUNNERS[0], RUNNERS[1], CLIENTS[0], CLIENTS[1], WATCHER, CONDUCTOR,
];

/// The faults of one simulation.
pub struct Faults {
    rng: Rng,
    shared: Rc<SharedState>,
    /// The time of the next fault.
    next: Duration,
    /// The hosts that are cut off from the supervisor, with the end of the fault.
    apart: BTreeMap<&'static str, Duration>,
    /// The dead machines, with the time of their restart.
    dead: BTreeMap<&'static str, Duration>,
}

impl Faults {
    /// Creates the faults of a seed.
    pub fn new(seed: u64, shared: Rc<SharedState>) -> Self {
        let mut rng = Rng::new(seed, "faults");
        Self {
            next: rng.millis(50..=400),
            rng,
            shared,
            apart: BTreeMap::new(),
            dead: BTreeMap::new(),
        }
    }

    /// Ends the faults whose time is over, and begins new faults.
    pub fn advance(&mut self, sim: &mut Sim<'_>) {
        let now = sim.elapsed();
        self.heal(sim, now);
        if now >= CHAOS {
            if !self.shared.calm.replace(true) {
                sim.set_fail_rate(0.0);
                // This also repairs links that the network broke at random.
                for host in OTHERS {
                    sim.repair(SUPERVISOR, host);
                }
            }
        } else if now >= self.next {
            self.next = now + self.rng.millis(100..=500);
            self.strike(sim, now);
        }
    }

    fn strike(&mut self, sim: &mut Sim<'_>, now: Duration) {
        match self.rng.below(10) {
            0..=2 => {
                let until = (now + self.rng.millis(50..=500)).min(CHAOS);
                self.kill(sim, SUPERVISOR, until);
            }
            3 | 4 => {
                let runner = self.rng.pick(&RUNNERS);
                // Sometimes longer than the runner's lease.
                let until = (now + self.rng.millis(50..=2_000)).min(CHAOS);
                self.kill(sim, runner, until);
            }
            _ => {
                let host = self.rng.pick(&OTHERS);
                let until = (now + self.rng.millis(50..=900)).min(CHAOS);
                self.cut(sim, host, until);
            }
        }
    }

    /// Kills a machine without notice. Its peers detect this only by its silence.
    fn kill(&mut self, sim: &mut Sim<'_>, host: &'static str, until: Duration) {
        if self.dead.contains_key(host) {
            return;
        }
        // Cuts the connections before the crash: the order in which the sockets of the dead host close depends on more
        // than the seed, so no host may observe it.
        if host == SUPERVISOR {
            for other in OTHERS {
                self.cut(sim, other, until);
            }
        } else {
            self.cut(sim, host, until);
            self.shared.runner_died(host);
        }
        sim.crash(host);
        self.dead.insert(host, until);
    }

    /// Cuts a host off from the supervisor, in both directions.
    fn cut(&mut self, sim: &Sim<'_>, host: &'static str, until: Duration) {
        sim.partition(SUPERVISOR, host);
        let end = self.apart.entry(host).or_default();
        *end = until.max(*end);
    }

    fn heal(&mut self, sim: &mut Sim<'_>, now: Duration) {
        for host in over(&mut self.dead, now) {
            sim.bounce(host);
        }
        for host in over(&mut self.apart, now) {
            sim.repair(SUPERVISOR, host);
        }
    }
}

/// Removes and returns the faults that have ended.
pub fn over<K: Copy + Ord>(faults: &mut BTreeMap<K, Duration>, now: Duration) -> Vec<K> {
    let over = faults.iter().filter(|(_, until)| **until <= now);
    let over: Vec<K> = over.map(|(host, _)| *host).collect();
    faults.retain(|_, until| *until > now);
    over
}
