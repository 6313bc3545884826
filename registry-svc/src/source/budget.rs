//! Limits for all files of a directory or of an uploaded workspace together.

/// Maximum total size in bytes. The files of a larger directory are not read at all, and a larger workspace is
/// rejected.
pub(super) const MAX_BYTES: usize = 16 * 1024 * 1024;

/// Maximum work of parsing, in units of about a byte of YAML. Files after the file that reaches the limit are rejected.
pub(super) const MAX_WORK: usize = 2 * 1024 * 1024;

/// The remaining work of parsing.
#[derive(Debug)]
pub(super) struct WorkBudget(usize);

impl Default for WorkBudget {
    fn default() -> Self {
        Self(MAX_WORK)
    }
}

impl WorkBudget {
    pub(super) const fn is_left(&self) -> bool {
        self.0 > 0
    }

    pub(super) const fn spend(&mut self, work: usize) {
        self.0 = self.0.saturating_sub(work);
    }
}
