//! The time of day and the ids of a simulation.

use std::sync::Mutex;

use supervisor_core::time::UnixMillis;
use supervisor_svc::clock::TimeSource;
use uuid::{Builder, Uuid};

use troupe_tests::rng::Rng;

/// The simulated host's time of day, and ids that the seed decides.
pub struct SimulatedTime {
    ids: Mutex<Rng>,
}

impl SimulatedTime {
    /// The time of the simulation of that seed. It outlives its hosts: no id comes twice.
    pub fn new(seed: u64) -> Self {
        Self {
            ids: Mutex::new(Rng::new(seed, "ids")),
        }
    }
}

impl TimeSource for SimulatedTime {
    fn now(&self) -> UnixMillis {
        let since_epoch = turmoil::since_epoch().expect("a simulated host asks");
        UnixMillis::new(u64::try_from(since_epoch.as_millis()).unwrap())
    }

    fn new_uuid(&self) -> Uuid {
        let mut ids = self.ids.lock().unwrap();
        let mut random = [0; 10];
        for (byte, number) in random.iter_mut().zip(ids.number().to_le_bytes().into_iter().cycle()) {
            *byte = number;
        }
        Builder::from_unix_timestamp_millis(self.now().get(), &random).into_uuid()
    }
}
