//! How much content a session may hold.

use crate::{domain::refusal::Refusal, store::Content};

/// More than one append brings: a session with less room left is counted exactly before each append.
const MARGIN: u64 = 32 * 1024 * 1024;

/// The content of one session against its bound, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ContentRoom {
    /// At least what is stored. Content that is brought twice is stored once, but counted twice here until the next count.
    used: u64,
    max: u64,
    is_exact: bool,
    /// Whether something was left out already: the log of the service says so once.
    left_out: bool,
}

impl ContentRoom {
    /// The room of a session whose store holds `used` bytes.
    pub const fn new(used: u64, max: u64) -> Self {
        Self {
            used,
            max,
            is_exact: true,
            left_out: false,
        }
    }

    /// Whether the store is to be asked how much there is.
    pub const fn needs_count(&self) -> bool {
        !self.is_exact && self.used.saturating_add(MARGIN) > self.max
    }

    /// Takes what the store counted.
    pub const fn count(&mut self, used: u64) {
        self.used = used;
        self.is_exact = true;
    }

    /// Checks that the session has room for these.
    ///
    /// # Errors
    /// [`Refusal::LimitExceeded`].
    pub fn check(&self, contents: &[Content]) -> Result<(), Refusal> {
        let (used, max, added) = (self.used, self.max, bytes_of(contents));
        if added == 0 || used.saturating_add(added) <= max {
            return Ok(());
        }
        Err(Refusal::LimitExceeded {
            limit: "session content",
            message: format!(
                "the session holds {used} bytes of content, and {added} more exceed its {max}; send less, go on in a new \
                 session, or raise --session-content-bytes"
            ),
        })
    }

    /// Counts what is brought along with an append.
    pub fn add(&mut self, contents: &[Content]) {
        let added = bytes_of(contents);
        self.used = self.used.saturating_add(added);
        self.is_exact &= added == 0;
    }

    /// Notes that something was left out. Answers whether for the first time.
    pub const fn leave_out(&mut self) -> bool {
        let is_first = !self.left_out;
        self.left_out = true;
        is_first
    }
}

fn bytes_of(contents: &[Content]) -> u64 {
    contents.iter().map(|content| content.bytes.len() as u64).sum()
}
