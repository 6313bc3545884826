//! Limits that clients can encounter, as rows of tables. Each crate builds its rows from the constants that its code
//! uses, and a test compares the rows with the documentation, so the two cannot diverge.

use std::{fmt, time::Duration};

use troupe_proto::MAX_MESSAGE_BYTES;

use crate::{
    admin::HEAD_WITHIN,
    connection::PREFACE_WITHIN,
    secret::{MAX_SHOWN_BYTES, MAX_TOKEN_BYTES, MIN_SECRET_BYTES},
    serve_limits::{MAX_CONNECTION_AGE, ServeLimits},
    token_file::MAX_TOKENS,
};

/// The limits of one area: a table of the limits reference.
#[derive(Clone, Debug)]
pub struct Area {
    /// The heading of the table.
    pub heading: &'static str,
    /// Its rows, in display order.
    pub limits: Vec<Limit>,
}

impl Area {
    /// Creates the table of an area.
    #[must_use]
    pub const fn new(heading: &'static str, limits: Vec<Limit>) -> Self {
        Self { heading, limits }
    }
}

/// One limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Description of the bounded quantity.
    pub what: &'static str,
    /// The bound, or the default if it is configurable.
    pub amount: Amount,
    /// The flag that changes it; `None` if it is fixed.
    pub flag: Option<&'static str>,
}

/// The value of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// A number of bytes.
    Bytes(u64),
    /// A number of items.
    Count(u64),
    /// A duration.
    Time(Duration),
}

impl Limit {
    /// Creates a limit in bytes.
    #[must_use]
    pub fn bytes(what: &'static str, bytes: impl TryInto<u64>) -> Self {
        Self::of(what, Amount::Bytes(number(bytes)))
    }

    /// Creates a limit on a number of items.
    #[must_use]
    pub fn count(what: &'static str, count: impl TryInto<u64>) -> Self {
        Self::of(what, Amount::Count(number(count)))
    }

    /// Creates a limit on a duration.
    #[must_use]
    pub const fn time(what: &'static str, span: Duration) -> Self {
        Self::of(what, Amount::Time(span))
    }

    /// Returns the limit as configurable by this flag, and by the environment variable of the same name.
    #[must_use]
    pub const fn set_by(self, flag: &'static str) -> Self {
        Self {
            flag: Some(flag),
            ..self
        }
    }

    /// Returns the environment variable that changes the limit: `TROUPE_MAX_DEPTH` for `--max-depth`.
    #[must_use]
    pub fn variable(&self) -> Option<String> {
        let name = self.flag?.trim_start_matches('-').replace('-', "_");
        Some(format!("TROUPE_{}", name.to_uppercase()))
    }

    const fn of(what: &'static str, amount: Amount) -> Self {
        Self {
            what,
            amount,
            flag: None,
        }
    }
}

fn number(value: impl TryInto<u64>) -> u64 {
    value.try_into().unwrap_or(u64::MAX)
}

/// Units larger than a byte, the largest first.
const BYTE_UNITS: &[(u128, &str)] = &[(1_024 * 1_024, "MiB"), (1_024, "KiB")];
/// Units larger than a millisecond, the largest first.
const TIME_UNITS: &[(u128, &str)] = &[(3_600_000, "h"), (60_000, "min"), (1_000, "s")];

impl fmt::Display for Amount {
    /// Uses the largest unit that divides the value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, units, smallest) = match self {
            Self::Count(count) => return f.write_str(&grouped(*count)),
            Self::Bytes(bytes) => (u128::from(*bytes), BYTE_UNITS, "bytes"),
            Self::Time(span) => (span.as_millis(), TIME_UNITS, "ms"),
        };
        let whole = units
            .iter()
            .find(|(unit, _)| number >= *unit && number.is_multiple_of(*unit));
        let (unit, name) = whole.copied().unwrap_or((1, smallest));
        write!(f, "{} {name}", grouped(number / unit))
    }
}

/// Formats a number with thousands separators.
fn grouped(number: impl fmt::Display) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns the limits of every service that this crate serves.
#[must_use]
pub fn limits() -> Area {
    let serve = ServeLimits::default();
    Area::new(
        "Connections and messages, both services",
        vec![
            Limit::bytes("a message", MAX_MESSAGE_BYTES),
            Limit::bytes("the headers of a call", serve.max_header_bytes),
            Limit::bytes("a token", MAX_TOKEN_BYTES),
            Limit::bytes("a token of an identity provider", MAX_SHOWN_BYTES),
            Limit::bytes("a token, at least", MIN_SECRET_BYTES),
            Limit::count("tokens in a file", MAX_TOKENS),
            Limit::count("concurrent connections", serve.max_connections),
            Limit::count(
                "of these, connections from one address (IPv6: one /64 network); loopback is exempt",
                serve.max_connections_per_address,
            )
            .set_by("--max-connections-per-address"),
            Limit::time("a connection without an authenticated call", serve.known_within),
            Limit::time("a connection with only health watches or reflection", serve.open_within),
            Limit::count("concurrent calls on one connection", serve.max_streams_per_connection),
            Limit::time(
                "reception of a request message; plus 1 s per 64 KiB",
                serve.message_within,
            ),
            Limit::count(
                "concurrent calls of operators, runners and services without a response yet",
                serve.max_calls_in_flight,
            ),
            Limit::count("of these, calls of one caller", serve.max_calls_per_caller),
            Limit::count(
                "concurrent calls of threads without a response yet",
                serve.max_calls_of_threads,
            ),
            Limit::count("of these, calls of one thread", serve.max_calls_per_thread),
            Limit::count(
                "concurrent WaitAgents and AuthorizeTool of operators; counted separately",
                serve.max_waits,
            ),
            Limit::count("of these, calls of one operator", serve.max_waits_per_caller),
            Limit::count(
                "concurrent WaitAgents and AuthorizeTool of threads; counted separately",
                serve.max_waits_of_threads,
            ),
            Limit::count(
                "of these, calls of one thread, for either method",
                serve.max_waits_per_thread,
            ),
            Limit::count(
                "open streams of one operator, runner or service",
                serve.max_open_streams_per_caller,
            ),
            Limit::count("open streams of one thread", serve.max_open_streams_per_thread),
            Limit::count(
                "open streams of health and reflection to one address",
                serve.max_open_streams_per_stranger,
            ),
            Limit::count(
                "open streams of health and reflection to all",
                serve.max_open_streams_of_strangers,
            ),
            Limit::count(
                "calls that a peer reset before the service accepted them",
                serve.max_pending_resets,
            ),
            Limit::time(
                "age at which a connection gets GOAWAY; open streams continue",
                MAX_CONNECTION_AGE,
            )
            .set_by("--max-connection-age"),
            Limit::time("the first bytes of a connection", PREFACE_WITHIN),
            Limit::time("the first request of a connection to the admin port", HEAD_WITHIN),
            Limit::time("silence on a connection before a ping", serve.keepalive_interval),
            Limit::time("response to a ping", serve.keepalive_timeout),
            Limit::time("grace period for calls in flight at shutdown", serve.drain),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amount_is_shown_in_largest_whole_unit() {
        let millis = Duration::from_millis;
        for (amount, shown) in [
            (Amount::Bytes(0), "0 bytes"),
            (Amount::Bytes(64), "64 bytes"),
            (Amount::Bytes(1_025), "1,025 bytes"),
            (Amount::Bytes(1_024), "1 KiB"),
            (Amount::Bytes(1_024 * 1_024 + 1_024), "1,025 KiB"),
            (Amount::Bytes(16 * 1_024 * 1_024), "16 MiB"),
            (Amount::Count(7), "7"),
            (Amount::Count(999), "999"),
            (Amount::Count(100_000), "100,000"),
            (Amount::Count(1_000_000), "1,000,000"),
            (Amount::Time(millis(0)), "0 ms"),
            (Amount::Time(millis(250)), "250 ms"),
            (Amount::Time(millis(30_000)), "30 s"),
            (Amount::Time(millis(90_000)), "90 s"),
            (Amount::Time(millis(1_200_000)), "20 min"),
            (Amount::Time(millis(86_400_000)), "24 h"),
        ] {
            assert_eq!(amount.to_string(), shown);
        }
    }
}
