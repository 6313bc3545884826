//! Durations on the command line and times on the screen.

use std::time::{Duration, SystemTime};

use prost_types::Timestamp;
pub(crate) use svc_kit::duration::parse as parse_duration;

/// Parses a positive duration.
pub(crate) fn parse_some_duration(text: &str) -> Result<Duration, String> {
    let span = parse_duration(text)?;
    if span.is_zero() {
        return Err("expected a span of time greater than zero".to_owned());
    }
    Ok(span)
}

/// Converts a duration for the API. Caps the seconds at the largest number that the API can represent.
pub(crate) fn to_proto(span: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(span.subsec_nanos()).unwrap_or_default(),
    }
}

/// Formats the elapsed time in its largest unit: `5s`, `3m`, `2h`, `4d`.
pub(crate) fn age(since: Option<&Timestamp>, now: SystemTime) -> String {
    let Some(then) = since.and_then(|since| SystemTime::try_from(*since).ok()) else {
        return String::new();
    };
    in_one_unit(now.duration_since(then).unwrap_or_default())
}

/// Formats the remaining time in its largest unit. `0s` if the time has passed.
pub(crate) fn left(until: Option<&Timestamp>, now: SystemTime) -> String {
    let Some(then) = until.and_then(|until| SystemTime::try_from(*until).ok()) else {
        return String::new();
    };
    in_one_unit(then.duration_since(now).unwrap_or_default())
}

fn in_one_unit(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Formats the duration of a short operation: `120ms`, `2.5s`, `3m`.
pub(crate) fn elapsed(span: prost_types::Duration) -> String {
    let span = Duration::try_from(span).unwrap_or_default();
    match span.as_millis() {
        millis @ 0..1000 => format!("{millis}ms"),
        millis @ 1000..60_000 => format!("{:.1}s", millis as f64 / 1000.0),
        _ => in_one_unit(span),
    }
}

/// Formats the time of day in UTC: `12:03:44`.
pub(crate) fn clock(time: Option<&Timestamp>) -> String {
    let text = time.map(ToString::to_string).unwrap_or_default();
    text.split_once('T')
        .and_then(|(_, clock)| clock.get(..8))
        .unwrap_or("--:--:--")
        .to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn age_is_in_its_largest_unit() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(200_000);
        let at = |seconds| Some(Timestamp { seconds, nanos: 0 });
        for (seconds, expected) in [
            (199_995, "5s"),
            (199_000, "16m"),
            (190_000, "2h"),
            (0, "2d"),
            (300_000, "0s"),
        ] {
            assert_eq!(age(at(seconds).as_ref(), now), expected);
        }
        assert_eq!(age(None, now), "");
    }

    #[test]
    fn remaining_time_is_never_negative() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let at = |seconds| Some(Timestamp { seconds, nanos: 0 });
        assert_eq!(left(at(1_599).as_ref(), now), "9m");
        assert_eq!(left(at(999).as_ref(), now), "0s");
        assert_eq!(left(None, now), "");
    }

    #[test]
    fn zero_durations_are_rejected() {
        assert!(parse_some_duration("1ms").is_ok());
        assert!(parse_some_duration("0").is_err() && parse_some_duration("soon").is_err());
    }

    #[test]
    fn clock_shows_utc() {
        assert_eq!(
            clock(Some(&Timestamp {
                seconds: 3_661,
                nanos: 5
            })),
            "01:01:01"
        );
        assert_eq!(clock(None), "--:--:--");
    }
}
