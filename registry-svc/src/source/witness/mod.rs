//! The kernel's word that nothing changed since somebody looked.
//!
//! A change on disk queues an event before the call that made it returns. So one who first takes all events that wait
//! (a single read that never blocks, and finds nothing as long as nothing happens) cannot miss a change that was
//! finished before. Events are taken by those who ask, never by a thread of its own, which could come too late.
//!
//! A look is told of each directory and each name before somebody reads there ([`Lookout`]) and has it watched from
//! then on. If nothing of that has changed once everything is read, the look becomes a [`Pledge`], which holds until
//! something does. What no event tells (writes through a mapping, another machine's or another container's writes,
//! mounts) is bounded: no pledge holds for longer than a second. And there is none at all where more would be missed:
//! on file systems that may change without this kernel, for files that have a second name, and on systems without
//! inotify.
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
