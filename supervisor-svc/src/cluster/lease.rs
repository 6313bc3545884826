//! The time during which this supervisor may answer from its memory.

use std::time::Duration;

use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

/// The lease of a member. It ends some time after the last successful beat was sent, so that it is over before another
/// member can declare this one dead.
#[derive(Debug)]
pub(super) struct Lease {
    end: watch::Sender<Instant>,
}

impl Lease {
    /// Creates a lease that has ended.
    pub fn ended() -> Self {
        Self {
            end: watch::Sender::new(Instant::now()),
        }
    }

    /// Sets the end of the lease.
    pub fn renew(&self, end: Instant) {
        self.end.send_replace(end);
    }

    /// Returns whether the lease is valid.
    pub fn is_valid(&self) -> bool {
        *self.end.borrow() > Instant::now()
    }

    /// Returns the time until the end of the lease.
    pub fn left(&self) -> Duration {
        self.end.borrow().saturating_duration_since(Instant::now())
    }

    /// Waits until the lease is valid. Returns false if that takes too long.
    pub async fn valid_within(&self, limit: Duration) -> bool {
        let mut ends = self.end.subscribe();
        let at = Instant::now() + limit;
        let renewed = timeout_at(at, ends.wait_for(|end| *end > Instant::now())).await;
        renewed.is_ok_and(|renewed| renewed.is_ok())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lease_ends_unless_it_is_renewed() {
        let lease = Lease::ended();
        assert!(!lease.is_valid());
        lease.renew(Instant::now() + Duration::from_secs(3));
        assert!(lease.is_valid());
        advance(Duration::from_secs(3)).await;
        assert!(!lease.is_valid());
        assert!(!lease.valid_within(Duration::from_secs(2)).await);
        let waits = lease.valid_within(Duration::from_secs(2));
        let renews = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            lease.renew(Instant::now() + Duration::from_secs(3));
        };
        assert!(tokio::join!(waits, renews).0);
    }
}
