//! The flags that every program with a supervisor in it has alike.

use std::time::Duration;

use clap::Args;

use crate::domain::settings::StallRule;

/// When an agent counts as stalled.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct StallOptions {
    /// After how many seconds without a word a running agent counts as stalled; 0: silence is no sign. Default: 600.
    #[arg(long, env = "TROUPE_STALL_AFTER", value_name = "SECONDS")]
    pub stall_after: Option<u64>,
    /// After how many turns in a row with the same output an agent counts as stalled; 0: outputs are not compared.
    /// Default: 3.
    #[arg(long, env = "TROUPE_STALL_REPEATS", value_name = "TURNS")]
    pub stall_repeats: Option<u32>,
}

impl StallOptions {
    /// The rule; what is not given is the default.
    ///
    /// # Errors
    /// As [`StallRule::check`].
    pub fn rule(&self) -> Result<StallRule, String> {
        let default = StallRule::default();
        let rule = StallRule {
            repeats: self.stall_repeats.unwrap_or(default.repeats),
            silence: self.stall_after.map_or(default.silence, Duration::from_secs),
        };
        rule.check().map(|()| rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_given_is_the_default() {
        assert_eq!(StallOptions::default().rule(), Ok(StallRule::default()));
        let given = StallOptions {
            stall_after: Some(0),
            stall_repeats: Some(5),
        };
        let expected = StallRule {
            repeats: 5,
            silence: Duration::ZERO,
        };
        assert_eq!(given.rule(), Ok(expected));
        let every_turn = StallOptions {
            stall_repeats: Some(1),
            ..given
        };
        assert!(every_turn.rule().is_err());
    }
}
