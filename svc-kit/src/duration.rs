//! Durations in flags and settings.

use std::time::Duration;

/// Parses a duration such as `500ms`, `30s`, `5m` or `2h`. A number without a unit is in seconds.
///
/// # Errors
///
/// The text is not a duration.
pub fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let expected = || format!("expected a duration like 500ms, 30s, 5m or 2h, not {text:?}");
    let number: u64 = number.parse().map_err(|_| expected())?;
    let span = match unit {
        "ms" => Some(Duration::from_millis(number)),
        "" | "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        "h" => number.checked_mul(3600).map(Duration::from_secs),
        _ => None,
    };
    span.ok_or_else(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, milliseconds) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("7", 7_000),
            (" 5m ", 300_000),
            ("2h", 7_200_000),
        ] {
            assert_eq!(parse(text).unwrap().as_millis(), milliseconds, "{text}");
        }
        for text in [
            "",
            "s",
            "-5s",
            "5 m",
            "5d",
            "1.5s",
            "99999999999999999999s",
            "18446744073709551615h",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
