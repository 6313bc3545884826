//! Agent programs: the driver of each protocol produces bounded results from arbitrary output lines. The first byte of
//! an input selects the protocol; see `troupe_runner::fuzzing`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use troupe_runner::fuzzing::agent_lines;

fuzz_target!(|bytes: &[u8]| agent_lines(bytes));
