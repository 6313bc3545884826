//! Detection of changes on disk with inotify.
//!
//! The kernel queues the event for a change before the system call that made the change returns. A caller that first
//! reads the queue cannot miss a completed change. Reading an empty queue is one system call that never blocks. A
//! background thread that delivers events could be late, so callers read the queue themselves.
//!
//! A [`Scan`] observes each directory and each name before it is read. If none of them changed until
//! the scan is complete, the result is a [`CacheGuard`]. The guard holds until one of the observed locations changes.
//! Calls check the guard of a cached value, and WatchAgents streams wait until a guard no longer holds.
//!
//! Some changes cause no event: writes through a mapping, writes by another machine or another container, and mounts. A
//! call therefore trusts a guard for at most one second. No guard is given where more changes could be missed: on file
//! systems that can change without this kernel, for files with several hard links, and on systems without inotify.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod portable;
#[cfg(target_os = "linux")]
mod resolve_path;

#[cfg(target_os = "linux")]
pub(crate) use linux::{CacheGuard, ChangeTracker, Scan};
#[cfg(not(target_os = "linux"))]
pub(crate) use portable::{CacheGuard, ChangeTracker, Scan};
