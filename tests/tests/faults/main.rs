//! Faults: killed processes, power cuts, failing disks, changed clocks, drains and overload. `tests/faults/table.tsv`
//! lists the promises.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

#[cfg(target_os = "linux")]
mod clock_jumps;
mod cluster;
mod cluster_faults;
mod crash;
mod crash_loop;
#[cfg(target_os = "linux")]
mod disk_faults;
mod drain;
mod group_kills;
#[cfg(target_os = "linux")]
mod journal;
#[cfg(target_os = "linux")]
mod machine;
mod postgres;
#[cfg(target_os = "linux")]
mod power_loss;
mod takeover;
mod ten_thousand_watchers;
