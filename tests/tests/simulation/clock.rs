//! The time of day and the ids of a simulation.

use std::sync::Mutex;

use supervisor_core::time::UnixMillis;
use supervisor_svc::clock::TimeSource;
use uuid::{Builder, Uuid};

use troupe_tests::rng::Rng;

/// The simulated host's time of day, and ids that the seed determines.
pub struct SimulatedTime {
    ids: Mutex<Rng>,
}

impl SimulatedTime {
    /// Creates the time and the ids of a seed's simulation. All hosts share it across restarts, so that no id is
    /// repeated.
    pub fn new(seed: u64) -> Self {
        Self {
            ids: Mutex::new(Rng::new(seed, "ids")),
        }
    }
}

impl TimeSource for SimulatedTime {
    fn now(&self) -> UnixMillis {
        let since_epoch = turmoil::since_epoch().expect("the caller runs on a simulated host");
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
