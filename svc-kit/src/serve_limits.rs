//! The limits of a server.

use std::time::Duration;

use crate::shutdown::DRAINS_WITHIN;

/// The limits of a server. The generated servers of the services limit the sizes of messages.
#[derive(Clone, Copy, Debug)]
pub struct ServeLimits {
    /// Maximum number of connections. When it is reached, a new connection replaces the oldest connection without an
    /// authenticated caller, or else the connection that has been idle longest.
    pub max_connections: usize,
    /// Maximum number of connections from one address, or from one /64 network for IPv6. Loopback has no limit of its
    /// own.
    pub max_connections_per_address: usize,
    /// Maximum age of a connection without a call from an authenticated caller.
    pub known_within: Duration,
    /// Maximum age of such a connection while it has open health watches or reflection streams.
    pub open_within: Duration,
    /// Maximum time for the message of a call to arrive, except for client streaming. Each 64 KiB of a large message
    /// extend it by one second.
    pub message_within: Duration,
    /// Maximum number of concurrent calls on one connection, which are HTTP/2 streams.
    pub max_streams_per_connection: u32,
    /// Maximum number of calls from operators, runners and services, over all connections, whose response has not
    /// begun. Calls above this limit, or above one of the following limits on calls, are rejected as OVERLOADED.
    pub max_calls_in_flight: usize,
    /// The part of `max_calls_in_flight` that one caller may use.
    pub max_calls_per_caller: usize,
    /// Maximum number of calls from all threads whose response has not begun.
    pub max_calls_of_threads: usize,
    /// The part of `max_calls_of_threads` that one thread may use.
    pub max_calls_per_thread: usize,
    /// Maximum number of calls from operators, runners and services to methods that may block for minutes. These calls
    /// do not count toward the four limits above on calls whose response has not begun.
    pub max_waits: usize,
    /// The part of `max_waits` that one caller may use.
    pub max_waits_per_caller: usize,
    /// Maximum number of calls from all threads to methods that may block for minutes.
    pub max_waits_of_threads: usize,
    /// The part of `max_waits_of_threads` that one thread may use.
    pub max_waits_per_thread: usize,
    /// Maximum number of open streams of one operator, runner or service, counted from the start of the call. More
    /// calls are rejected as OVERLOADED.
    pub max_open_streams_per_caller: usize,
    /// Maximum number of open streams of one thread.
    pub max_open_streams_per_thread: usize,
    /// Maximum number of open streams of one address, for methods without authentication.
    pub max_open_streams_per_stranger: usize,
    /// Maximum number of open streams of all addresses together, for methods without authentication.
    pub max_open_streams_of_strangers: usize,
    /// Maximum size of the headers of a call in bytes.
    pub max_header_bytes: u32,
    /// Maximum number of streams that a peer has reset before the server handled them ("rapid reset").
    pub max_pending_resets: usize,
    /// Interval of pings on a silent connection. They detect dead watchers.
    pub keepalive_interval: Duration,
    /// Maximum time until the response to a ping.
    pub keepalive_timeout: Duration,
    /// Age at which the server asks a connection to close, so that clients behind a load balancer spread again. Open
    /// streams continue. `None` disables this.
    pub max_connection_age: Option<Duration>,
    /// Time in which calls are still accepted after health reports NOT_SERVING. Part of `drain`.
    pub notice: Duration,
    /// Maximum time from the trigger of the shutdown until [`serve`](crate::serve::serve) returns.
    pub drain: Duration,
}

/// Default of `max_connection_age`. It is longer than a watch lasts.
pub(crate) const MAX_CONNECTION_AGE: Duration = Duration::from_secs(30 * 60);
/// Default maximum of connections from one address. It allows a proxy in front of many clients.
pub(crate) const MAX_CONNECTIONS_PER_ADDRESS: u32 = 1024;

impl ServeLimits {
    /// The default limits.
    pub const DEFAULT: Self = Self {
        max_connections: 4096,
        max_connections_per_address: MAX_CONNECTIONS_PER_ADDRESS as usize,
        known_within: Duration::from_secs(10),
        open_within: Duration::from_secs(5 * 60),
        message_within: Duration::from_secs(10),
        max_streams_per_connection: 1024,
        max_calls_in_flight: 4096,
        max_calls_per_caller: 2048,
        max_calls_of_threads: 1024,
        max_calls_per_thread: 64,
        max_waits: 4096,
        max_waits_per_caller: 2048,
        max_waits_of_threads: 4096,
        // Equal to the number of tool calls of one thread that can wait for an operator.
        max_waits_per_thread: 64,
        max_open_streams_per_caller: 16_384,
        max_open_streams_per_thread: 64,
        max_open_streams_per_stranger: 256,
        // A client that watches the health of a service has one such stream per connection.
        max_open_streams_of_strangers: 4096,
        max_header_bytes: 16 * 1024,
        max_pending_resets: 64,
        keepalive_interval: Duration::from_secs(30),
        keepalive_timeout: Duration::from_secs(10),
        max_connection_age: Some(MAX_CONNECTION_AGE),
        notice: Duration::ZERO,
        drain: DRAINS_WITHIN,
    };
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
