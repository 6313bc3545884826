//! Change detection with inotify: a guarantee from the kernel that nothing changed since the last scan.
//!
//! The kernel queues the event for a change on disk before the system call that made the change returns. A caller that
//! first drains the queue (a single read that never blocks and is empty while nothing changes) cannot miss a change
//! that was completed earlier. Callers drain the queue themselves, because a background thread could run too late.
//!
//! A look is notified of each directory and each name before it is read ([`Lookout`]), and watches it from then on. If
//! nothing has changed when the scan is complete, the look becomes a [`Pledge`], which holds until one of its locations
//! changes. Some changes cause no event: writes through a mapping, writes by another machine or another container, and
//! mounts. They are bounded, because a pledge never holds for longer than a second. No pledge is given where more
//! changes could be missed: on file systems that can change without this kernel, for files that have a second name, and
//! on systems without inotify.
//!
//! [`Lookout`]: crate::source::places::Lookout

#[cfg(not(target_os = "linux"))]
mod blind;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
mod way;

#[cfg(not(target_os = "linux"))]
pub(crate) use blind::{Look, Pledge, Witness};
#[cfg(target_os = "linux")]
pub(crate) use linux::{Look, Pledge, Witness};
