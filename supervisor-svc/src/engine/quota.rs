//! The content quota of a session.

use supervisor_log::store::Content;

use crate::domain::rejection::Rejection;

/// More bytes than one append adds. If the session has less room left, its content is counted exactly before each
/// append.
const MARGIN: u64 = 32 * 1024 * 1024;

/// The used content of a session and its limit, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ContentQuota {
    /// An upper bound of the stored bytes. A duplicate is stored once, but counted twice until the next exact count.
    used: u64,
    max: u64,
    is_exact: bool,
    /// Whether content was omitted before. The service logs only the first omission.
    left_out: bool,
}

impl ContentQuota {
    /// Creates the quota of a session whose store holds `used` bytes.
    pub const fn new(used: u64, max: u64) -> Self {
        Self {
            used,
            max,
            is_exact: true,
            left_out: false,
        }
    }

    /// Returns whether the store must count the content.
    pub const fn needs_count(&self) -> bool {
        !self.is_exact && self.used.saturating_add(MARGIN) > self.max
    }

    /// Sets the store's count.
    pub const fn count(&mut self, used: u64) {
        self.used = used;
        self.is_exact = true;
    }

    /// Checks that the session has room for these contents.
    ///
    /// # Errors
    /// [`Rejection::LimitExceeded`].
    pub fn check(&self, contents: &[Content]) -> Result<(), Rejection> {
        let (used, max, added) = (self.used, self.max, bytes_of(contents));
        if added == 0 || used.saturating_add(added) <= max {
            return Ok(());
        }
        Err(Rejection::LimitExceeded {
            limit: "session content",
            message: format!(
                "the session holds {used} bytes of content, and {added} more exceed its {max}; send less, go on in a new \
                 session, or raise --session-content-bytes"
            ),
        })
    }

    /// Counts the contents of an append.
    pub fn add(&mut self, contents: &[Content]) {
        let added = bytes_of(contents);
        self.used = self.used.saturating_add(added);
        self.is_exact &= added == 0;
    }

    /// Records that content was omitted. Returns whether this is the first time.
    pub const fn record_omission(&mut self) -> bool {
        let is_first = !self.left_out;
        self.left_out = true;
        is_first
    }
}

fn bytes_of(contents: &[Content]) -> u64 {
    contents.iter().map(|content| content.bytes.len() as u64).sum()
}
