//! The faults of three supervisors and their times. All faults end after a while.

use std::{collections::BTreeMap, rc::Rc, time::Duration};

use troupe_tests::rng::Rng;
use turmoil::Sim;

use super::{
    reader::READER,
    store::LinkState,
    world::{Machines, SUPERVISORS},
};
use crate::{
    faults::over,
    shared::{CLIENTS, CONDUCTOR, REGISTRY, RUNNERS, SharedState, WATCHER},
};

/// Duration of the phase with faults.
const CHAOS: Duration = Duration::from_secs(10);

/// All hosts.
const HOSTS: [&str; 11] = [
    SUPERVISORS[0],
    SUPERVISORS[1],
    SUPERVISORS[2],
    REGISTRY,
    RUNNERS[0],
    RUNNERS[1],
    CLIENTS[0],
    CLIENTS[1],
    WATCHER,
    CONDUCTOR,
    READER,
];

/// The state of the connection between two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wire {
    Whole,
    Held,
    Cut,
}

/// The faults of one simulation.
pub struct Faults {
    rng: Rng,
    shared: Rc<SharedState>,
    machines: Rc<Machines>,
    /// The time of the next fault.
    next: Duration,
    /// The pairs of hosts that are cut off from each other, with the end of the fault.
    apart: BTreeMap<(&'static str, &'static str), Duration>,
    /// The dead machines, with the time of their restart.
    dead: BTreeMap<&'static str, Duration>,
    /// The paused supervisors, with the end of the pause.
    paused: BTreeMap<&'static str, Duration>,
    /// The supervisors that are cut off from the log, with the end of the fault.
    without_log: BTreeMap<&'static str, Duration>,
    /// The states of the connections.
    wires: BTreeMap<(&'static str, &'static str), Wire>,
}

impl Faults {
    /// Creates the faults of a seed.
    pub fn new(seed: u64, shared: Rc<SharedState>, machines: Rc<Machines>) -> Self {
        let mut rng = Rng::new(seed, "faults of three");
        Self {
            next: rng.millis(50..=1_500),
            rng,
            shared,
            machines,
            apart: BTreeMap::new(),
            dead: BTreeMap::new(),
            paused: BTreeMap::new(),
            without_log: BTreeMap::new(),
            wires: BTreeMap::new(),
        }
    }

    /// Ends the faults whose time is over, begins new faults, and restarts the processes that have ended.
    pub fn advance(&mut self, sim: &mut Sim<'_>) {
        let now = sim.elapsed();
        over(&mut self.apart, now);
        over(&mut self.paused, now);
        over(&mut self.without_log, now);
        let restarted = over(&mut self.dead, now);
        let mut died = Vec::new();
        if now >= CHAOS {
            if !self.shared.calm.replace(true) {
                sim.set_fail_rate(0.0);
                // This also repairs links that the network broke at random.
                for (index, host) in HOSTS.iter().enumerate() {
                    for other in &HOSTS[index + 1..] {
                        if self.wires.get(&(*host, *other)).is_none_or(|wire| *wire == Wire::Whole) {
                            sim.repair(*host, *other);
                        }
                    }
                }
            }
        } else if now >= self.next {
            self.next = now + self.rng.millis(100..=1_200);
            died.extend(self.strike(now));
        }
        for host in SUPERVISORS {
            // The supervisor was drained or removed.
            if !self.dead.contains_key(host) && !restarted.contains(&host) && !sim.is_host_running(host) {
                self.dead.insert(host, now + self.rng.millis(50..=500));
                died.push(host);
            }
        }
        // Cuts the connections before the crash: the order in which the sockets of a dead host close depends on more
        // than the seed, so no host may observe it.
        self.connect(sim);
        for host in died {
            if RUNNERS.contains(&host) {
                self.shared.runner_died(host);
            }
            sim.crash(host);
        }
        for host in restarted {
            sim.bounce(host);
        }
    }

    /// Begins a fault. Returns the machine that the fault kills, if any.
    fn strike(&mut self, now: Duration) -> Option<&'static str> {
        let supervisor = self.rng.pick(&SUPERVISORS);
        match self.rng.below(12) {
            0 | 1 => return self.kill(supervisor, now, 6_000),
            2..=4 => {
                // Half of the pauses end at about the time at which another supervisor takes over.
                let takes_over = self.rng.one_in(2);
                let length = self.rng.millis(if takes_over { 3_500..=6_500 } else { 100..=4_000 });
                let until = (now + length).min(CHAOS);
                self.paused.entry(supervisor).or_insert(until);
            }
            5 | 6 => {
                let until = (now + self.rng.millis(100..=7_000)).min(CHAOS);
                self.without_log.entry(supervisor).or_insert(until);
            }
            7 => {
                if let Some(drain) = self.machines.drains.borrow().get(supervisor) {
                    drain.notify_one();
                }
            }
            8 => {
                let runner = self.rng.pick(&RUNNERS);
                return self.kill(runner, now, 2_000);
            }
            _ => {
                let other = self.rng.pick(&HOSTS);
                if other != supervisor {
                    let until = (now + self.rng.millis(50..=4_000)).min(CHAOS);
                    self.apart.entry(pair(supervisor, other)).or_insert(until);
                }
            }
        }
        None
    }

    /// Kills a machine without notice. Its peers detect this only by its silence.
    fn kill(&mut self, host: &'static str, now: Duration, longest: u64) -> Option<&'static str> {
        if self.dead.contains_key(host) {
            return None;
        }
        let until = (now + self.rng.millis(50..=longest)).min(CHAOS);
        self.dead.insert(host, until);
        Some(host)
    }

    /// Applies the faults to all connections.
    fn connect(&mut self, sim: &Sim<'_>) {
        for host in SUPERVISORS {
            let state = if self.paused.contains_key(host) {
                LinkState::Held
            } else if self.without_log.contains_key(host) {
                LinkState::Down
            } else {
                LinkState::Up
            };
            self.machines.links[host].set(state);
        }
        for (index, host) in HOSTS.iter().enumerate() {
            for other in &HOSTS[index + 1..] {
                self.wire(sim, (*host, *other));
            }
        }
    }

    fn wire(&mut self, sim: &Sim<'_>, (host, other): (&'static str, &'static str)) {
        let is_either =
            |hosts: &BTreeMap<&'static str, Duration>| hosts.contains_key(host) || hosts.contains_key(other);
        let wanted = if is_either(&self.dead) || self.apart.contains_key(&(host, other)) {
            Wire::Cut
        } else if is_either(&self.paused) {
            Wire::Held
        } else {
            Wire::Whole
        };
        let present = self.wires.insert((host, other), wanted).unwrap_or(Wire::Whole);
        match (present, wanted) {
            (Wire::Cut, Wire::Whole) => sim.repair(host, other),
            (Wire::Held, Wire::Whole) => sim.release(host, other),
            (Wire::Whole | Wire::Cut, Wire::Held) => sim.hold(host, other),
            (Wire::Whole | Wire::Held, Wire::Cut) => sim.partition(host, other),
            (Wire::Whole, Wire::Whole) | (Wire::Held, Wire::Held) | (Wire::Cut, Wire::Cut) => {}
        }
    }
}

/// Returns the pair of two hosts, in the order of [`HOSTS`].
fn pair(host: &'static str, other: &'static str) -> (&'static str, &'static str) {
    let place = |wanted: &str| HOSTS.iter().position(|host| *host == wanted);
    if place(host) < place(other) {
        (host, other)
    } else {
        (other, host)
    }
}
