//! The faults and their times: broken links and dead machines. All faults end after a while.

use std::{collections::BTreeMap, rc::Rc, time::Duration};

use troupe_tests::rng::Rng;
use turmoil::Sim;

use crate::shared::{CLIENTS, CONDUCTOR, REGISTRY, RUNNERS, SUPERVISOR, SharedState, WATCHER};

/// How long things go wrong.
const CHAOS: Duration = Duration::from_millis(2_500);

/// The hosts that connect to the supervisor.
const OTHERS: [&str; 7] = [
    REGISTRY, RUNNERS[0], RUNNERS[1], CLIENTS[0], CLIENTS[1], WATCHER, CONDUCTOR,
];

/// The faults of one simulation.
pub struct Faults {
    rng: Rng,
    shared: Rc<SharedState>,
    /// When the next one comes.
    next: Duration,
    /// The hosts that are cut off from the supervisor, and until when.
    apart: BTreeMap<&'static str, Duration>,
    /// The machines that are dead, and until when.
    dead: BTreeMap<&'static str, Duration>,
}

impl Faults {
    /// The faults that the seed decides.
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

    /// Ends the faults whose time is over, and brings new ones.
    pub fn pass(&mut self, sim: &mut Sim<'_>) {
        let now = sim.elapsed();
        self.heal(sim, now);
        if now >= CHAOS {
            if !self.shared.calm.replace(true) {
                sim.set_fail_rate(0.0);
                // Links that broke by themselves too.
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
                // At times longer than its lease.
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

    /// Kills a machine without notice: its peers detect it by its silence.
    fn kill(&mut self, sim: &mut Sim<'_>, host: &'static str, until: Duration) {
        if self.dead.contains_key(host) {
            return;
        }
        // First. The order in which the sockets of the dead host close depends on more than the seed, so no host may
        // observe it.
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

    /// Nothing comes through between a host and the supervisor, in either direction.
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
