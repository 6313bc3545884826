//! The progress of a batch: counts, rate, time left and cost so far.

use std::time::{Duration, Instant};

use troupe_proto::supervisor::v1::Group;

use crate::{
    context::Context,
    error::Result,
    ui::{self, Live},
};

/// The display of a batch's progress: one line that is redrawn, on terminals only.
pub(super) struct Progress {
    live: Option<Live>,
    columns: usize,
    start: Instant,
    /// The number of items that had ended when the display started.
    before: u32,
}

impl Progress {
    pub(super) fn new(group: &Group, context: &Context) -> Self {
        Self {
            live: context.ui.live(),
            columns: context.ui.columns(),
            start: Instant::now(),
            before: ended(group),
        }
    }

    pub(super) fn show(&mut self, group: &Group) -> Result<()> {
        match &mut self.live {
            Some(live) => {
                let text = text(group, ended(group).saturating_sub(self.before), self.start.elapsed());
                live.draw(&ui::clip(&text, self.columns))
            }
            None => Ok(()),
        }
    }

    pub(super) fn end(&mut self) {
        if let Some(live) = &mut self.live {
            live.finish();
        }
    }
}

/// Returns the number of items that have ended.
const fn ended(group: &Group) -> u32 {
    group.succeeded + group.failed + group.cancelled
}

/// Returns the counts of a batch: `7/10 succeeded, 1 failed, 2 running`.
pub(crate) fn counts(group: &Group) -> String {
    let total = ended(group) + group.running + group.pending;
    let mut text = format!("{}/{total} succeeded", group.succeeded);
    for (count, what) in [
        (group.failed, "failed"),
        (group.cancelled, "cancelled"),
        (group.running, "running"),
    ] {
        if count > 0 {
            text.push_str(&format!(", {count} {what}"));
        }
    }
    text
}

fn text(group: &Group, done: u32, elapsed: Duration) -> String {
    let mut text = counts(group);
    let seconds = elapsed.as_secs_f64();
    if done > 0 && seconds > 0.0 {
        let rate = f64::from(done) / seconds;
        let left = f64::from(group.running + group.pending) / rate;
        text.push_str(&format!(", {rate:.1}/s, {} left", span(left)));
    }
    let usage = group.usage.unwrap_or_default();
    let (tokens, cost) = (ui::tokens(&usage), ui::cost(&usage));
    if !tokens.is_empty() {
        text.push_str(&format!(", {tokens} tokens, cost {cost}"));
        if let Some(estimate) = &group.estimated_usage {
            text.push_str(&format!(" of about {}", ui::cost(estimate)));
        }
    }
    text
}

/// Formats seconds as `40s`, `3m` or `2h`.
fn span(seconds: f64) -> String {
    if seconds < 60.0 {
        format!("{seconds:.0}s")
    } else if seconds < 3_600.0 {
        format!("{:.0}m", seconds / 60.0)
    } else {
        format!("{:.0}h", seconds / 3_600.0)
    }
}

#[cfg(test)]
mod tests {
    use troupe_proto::supervisor::v1::Usage;

    use super::*;

    #[test]
    fn progress_shows_rate_and_time_left() {
        let group = Group {
            pending: 10,
            running: 2,
            succeeded: 5,
            failed: 1,
            ..Group::default()
        };
        assert_eq!(counts(&group), "5/18 succeeded, 1 failed, 2 running");
        assert_eq!(
            text(&group, 6, Duration::from_secs(3)),
            "5/18 succeeded, 1 failed, 2 running, 2.0/s, 6s left"
        );
        assert_eq!(text(&group, 0, Duration::ZERO), counts(&group));
        let usage = |tokens| Usage {
            input_tokens: tokens,
            unpriced_tokens: tokens,
            ..Usage::default()
        };
        let spending = Group {
            usage: Some(usage(10)),
            estimated_usage: Some(usage(30)),
            ..group.clone()
        };
        let unknown = ui::cost(&usage(10));
        let expected = format!("{}, 10 tokens, cost {unknown} of about {unknown}", counts(&group));
        assert_eq!(text(&spending, 0, Duration::ZERO), expected);
        assert_eq!((span(90.0), span(7_300.0)), ("2m".to_owned(), "2h".to_owned()));
    }
}
