//! Drives the running pair that the environment names. It has to run the sample agent, as `troupe up` does.

mod relay;
mod session;
mod tour;
mod tree;
mod watch;
