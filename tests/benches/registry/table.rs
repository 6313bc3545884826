//! Tables in Markdown, and the few numbers that go into them.

use std::time::Duration;

/// Prints a table.
pub(crate) fn print<const N: usize>(headings: [&str; N], rows: &[[String; N]]) {
    println!("| {} |", headings.join(" | "));
    println!("|{}", "---|".repeat(N));
    for row in rows {
        println!("| {} |", row.join(" | "));
    }
    println!();
}

/// The middle one; of an even number the lower.
pub(crate) fn median<T: Copy + PartialOrd>(values: &[T]) -> T {
    let mut sorted = values.to_vec();
    sorted.sort_by(|one, other| one.partial_cmp(other).unwrap());
    sorted[(sorted.len() - 1) / 2]
}

/// The value below which that part of the values lies.
pub(crate) fn quantile(sorted: &[Duration], part: f64) -> Duration {
    let last = sorted.len() - 1;
    let index = (last as f64 * part).round() as usize;
    sorted[index.min(last)]
}

pub(crate) fn millis(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1e3)
}

pub(crate) fn percent(part: Duration, whole: Duration) -> String {
    format!("{:.2} %", part.as_secs_f64() / whole.as_secs_f64() * 1e2)
}
