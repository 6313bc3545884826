//! The deadline of a call: read from `grpc-timeout`, stored with the request, and passed on to outgoing calls made for
//! it.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;
use tonic::Request;

const HEADER: &str = "grpc-timeout";

/// The moment at which the caller stops waiting for the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline {
    /// The moment, on tokio's clock.
    pub at: Instant,
}

impl Deadline {
    /// Returns the deadline in the headers of a call, counted from `now`; `None` if it is missing or malformed.
    #[must_use]
    pub fn from_headers(headers: &HeaderMap, now: Instant) -> Option<Self> {
        let timeout = parse(headers.get(HEADER)?.to_str().ok()?)?;
        Some(Self {
            at: now.checked_add(timeout)?,
        })
    }

    /// Returns the deadline of a request, if its caller set one.
    #[must_use]
    pub fn of<T>(request: &Request<T>) -> Option<Self> {
        request.extensions().get::<Self>().copied()
    }

    /// Returns the remaining time; zero once the deadline has passed.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }
}

/// Returns the time limit of an outgoing call made for a caller: the caller's remaining time, at most `cap`.
#[must_use]
pub fn within(deadline: Option<Deadline>, cap: Duration) -> Duration {
    deadline.map_or(cap, |deadline| deadline.remaining().min(cap))
}

/// Sets the timeout of an outgoing request to the caller's remaining time, at most `cap`.
pub fn limit<T>(request: &mut Request<T>, deadline: Option<Deadline>, cap: Duration) {
    request.set_timeout(within(deadline, cap));
}

/// Returns the header, as name and value, that gives a forwarded call this time limit.
#[must_use]
pub fn header_value(limit: Duration) -> (HeaderName, HeaderValue) {
    // `grpc-timeout` allows at most eight digits.
    let millis = limit.as_millis().clamp(1, 99_999_999);
    let value = HeaderValue::from_str(&format!("{millis}m"));
    (
        HeaderName::from_static(HEADER),
        value.unwrap_or(HeaderValue::from_static("1m")),
    )
}

/// Parses the gRPC form: one to eight digits and a unit.
fn parse(text: &str) -> Option<Duration> {
    let (unit, digits) = text.as_bytes().split_last()?;
    if !(1..=8).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits
        .iter()
        .fold(0_u64, |value, digit| value * 10 + u64::from(digit - b'0'));
    match unit {
        b'H' => Some(Duration::from_secs(value * 3600)),
        b'M' => Some(Duration::from_secs(value * 60)),
        b'S' => Some(Duration::from_secs(value)),
        b'm' => Some(Duration::from_millis(value)),
        b'u' => Some(Duration::from_micros(value)),
        b'n' => Some(Duration::from_nanos(value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_parse_as_grpc_defines_them() {
        for (text, expected) in [
            ("1H", Some(Duration::from_secs(3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("3S", Some(Duration::from_secs(3))),
            ("99999999m", Some(Duration::from_millis(99_999_999))),
            ("5u", Some(Duration::from_micros(5))),
            ("0n", Some(Duration::ZERO)),
            ("", None),
            ("S", None),
            ("5", None),
            ("5s", None),
            ("+5S", None),
            ("-5S", None),
            ("5 S", None),
            ("100000000S", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[tokio::test]
    async fn outgoing_timeout_is_lesser_of_remaining_and_cap() {
        let cap = Duration::from_secs(5);
        let now = Instant::now();
        let long = Deadline {
            at: now + Duration::from_secs(60),
        };
        let passed = Deadline { at: now };
        assert_eq!(within(None, cap), cap);
        assert_eq!(within(Some(long), cap), cap);
        assert_eq!(within(Some(passed), cap), Duration::ZERO);

        let mut request = Request::new(());
        limit(&mut request, Some(long), cap);
        assert!(request.metadata().contains_key(HEADER));
    }

    #[test]
    fn headers_without_valid_timeout_have_no_deadline() {
        let now = Instant::now();
        let mut headers = HeaderMap::new();
        assert_eq!(Deadline::from_headers(&headers, now), None);
        headers.insert(HEADER, "soon".parse().unwrap());
        assert_eq!(Deadline::from_headers(&headers, now), None);
        headers.insert(HEADER, "2S".parse().unwrap());
        let at = now + Duration::from_secs(2);
        assert_eq!(Deadline::from_headers(&headers, now), Some(Deadline { at }));
    }
}
