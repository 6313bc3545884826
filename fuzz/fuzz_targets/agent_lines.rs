//! Agent programs: whatever lines one says, in any of their protocols, its driver makes of it something within bounds.
//! The first byte of an input is the protocol's; see `troupe_runner::fuzzing`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use troupe_runner::fuzzing::agent_lines;

fuzz_target!(|bytes: &[u8]| agent_lines(bytes));
