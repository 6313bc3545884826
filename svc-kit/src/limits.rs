//! Limits that clients can encounter, as rows of one table. Each crate builds its rows from the constants that its code
//! uses, and a test compares the rows with the documentation, so the two cannot diverge.

use std::{fmt, time::Duration};

use troupe_proto::MAX_MESSAGE_BYTES;

use crate::{
    admin::HEAD_WITHIN,
    connection::PREFACE_WITHIN,
    secret::{MAX_SHOWN_BYTES, MAX_TOKEN_BYTES, MIN_SECRET_BYTES},
    serve::{MAX_CONNECTION_AGE, ServeLimits},
    token_file::MAX_TOKENS,
};

/// One limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The heading of the table that it is listed under.
    pub area: &'static str,
    /// Description of the bounded quantity.
    pub what: &'static str,
    /// The bound, or the default if it is configurable.
    pub amount: Amount,
    /// The setting that changes it; `None` if it is fixed.
    pub setting: Option<Setting>,
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

/// The setting that changes a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The flag.
    pub flag: &'static str,
    /// The environment variable.
    pub variable: &'static str,
}

impl Limit {
    /// Creates a limit in bytes.
    #[must_use]
    pub fn bytes(area: &'static str, what: &'static str, bytes: impl TryInto<u64>) -> Self {
        Self::of(area, what, Amount::Bytes(number(bytes)))
    }

    /// Creates a limit on a number of items.
    #[must_use]
    pub fn count(area: &'static str, what: &'static str, count: impl TryInto<u64>) -> Self {
        Self::of(area, what, Amount::Count(number(count)))
    }

    /// Creates a limit on a duration.
    #[must_use]
    pub const fn time(area: &'static str, what: &'static str, span: Duration) -> Self {
        Self::of(area, what, Amount::Time(span))
    }

    /// Returns the limit as configurable by this flag and variable.
    #[must_use]
    pub const fn set_by(self, flag: &'static str, variable: &'static str) -> Self {
        Self {
            setting: Some(Setting { flag, variable }),
            ..self
        }
    }

    const fn of(area: &'static str, what: &'static str, amount: Amount) -> Self {
        Self {
            area,
            what,
            amount,
            setting: None,
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
pub fn limits() -> Vec<Limit> {
    const AREA: &str = "Connections and messages, both services";
    let serve = ServeLimits::default();
    vec![
        Limit::bytes(AREA, "a message", MAX_MESSAGE_BYTES),
        Limit::bytes(AREA, "the headers of a call", serve.max_header_bytes),
        Limit::bytes(AREA, "a token", MAX_TOKEN_BYTES),
        Limit::bytes(AREA, "a token of an identity provider", MAX_SHOWN_BYTES),
        Limit::bytes(AREA, "a token, at least", MIN_SECRET_BYTES),
        Limit::count(AREA, "tokens in a file", MAX_TOKENS),
        Limit::count(AREA, "connections at once", serve.max_connections),
        Limit::count(
            AREA,
            "of these, those from one address, of IPv6 from one /64 network, loopback excepted",
            serve.max_connections_per_address,
        )
        .set_by("--max-connections-per-address", "TROUPE_MAX_CONNECTIONS_PER_ADDRESS"),
        Limit::time(
            AREA,
            "a connection without a call of an authenticated caller",
            serve.known_within,
        ),
        Limit::time(
            AREA,
            "the same while health is watched or reflection is used",
            serve.open_within,
        ),
        Limit::count(
            AREA,
            "calls at once on one connection",
            serve.max_streams_per_connection,
        ),
        Limit::time(
            AREA,
            "the message of a call; each 64 KiB of it add 1 s",
            serve.message_within,
        ),
        Limit::count(
            AREA,
            "calls of operators, runners and services at once that have not begun to answer",
            serve.max_calls_in_flight,
        ),
        Limit::count(AREA, "of these, those of one caller", serve.max_calls_per_caller),
        Limit::count(
            AREA,
            "calls of threads at once that have not begun to answer",
            serve.max_calls_of_threads,
        ),
        Limit::count(AREA, "of these, those of one thread", serve.max_calls_per_thread),
        Limit::count(
            AREA,
            "WaitAgents and AuthorizeTool at once by operators; they count nowhere else",
            serve.max_waits,
        ),
        Limit::count(AREA, "of these, those of one operator", serve.max_waits_per_caller),
        Limit::count(
            AREA,
            "WaitAgents and AuthorizeTool at once by threads; they count nowhere else",
            serve.max_waits_of_threads,
        ),
        Limit::count(
            AREA,
            "of these, those of one thread, either method",
            serve.max_waits_per_thread,
        ),
        Limit::count(
            AREA,
            "open streams of one operator, runner or service",
            serve.max_open_streams_per_caller,
        ),
        Limit::count(AREA, "open streams of one thread", serve.max_open_streams_per_thread),
        Limit::count(
            AREA,
            "open streams of health and reflection to one address",
            serve.max_open_streams_per_stranger,
        ),
        Limit::count(
            AREA,
            "open streams of health and reflection to all",
            serve.max_open_streams_of_strangers,
        ),
        Limit::count(
            AREA,
            "calls that a peer began and gave up before they were looked at",
            serve.max_pending_resets,
        ),
        Limit::time(
            AREA,
            "a connection until it is asked to go away; its streams live on",
            MAX_CONNECTION_AGE,
        )
        .set_by("--max-connection-age", "TROUPE_MAX_CONNECTION_AGE"),
        Limit::time(AREA, "the first bytes of a connection", PREFACE_WITHIN),
        Limit::time(AREA, "the first request of one to the admin port", HEAD_WITHIN),
        Limit::time(AREA, "a silent connection until it is pinged", serve.keepalive_interval),
        Limit::time(AREA, "the answer to a ping", serve.keepalive_timeout),
        Limit::time(
            AREA,
            "calls in flight at a shutdown, until they are cut off",
            serve.drain,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_shown_in_its_largest_whole_unit() {
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
