//! Tests against the running pair of the TROUPE_ variables. The pair must run the sample agent, as `troupe up` does.

mod relay;
mod session;
mod tour;
mod tree;
mod watch;
