//! What a thread spent in its attempt. Programs count from their own start; the supervisor counts by attempt.

use std::time::Duration;

use troupe_proto::supervisor::v1::Usage;

/// Tokens as a program counts them, from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tokens {
    pub(crate) input: u64,
    pub(crate) cached_input: u64,
    pub(crate) output: u64,
}

impl Tokens {
    /// What is more than `base`.
    pub(crate) const fn minus(self, base: Self) -> Self {
        Self {
            input: self.input.saturating_sub(base.input),
            cached_input: self.cached_input.saturating_sub(base.cached_input),
            output: self.output.saturating_sub(base.output),
        }
    }

    const fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            cached_input: self.cached_input.saturating_add(other.cached_input),
            output: self.output.saturating_add(other.output),
        }
    }
}

/// Adds up what the programs of one attempt spent, one after the other.
#[derive(Debug, Default)]
pub(crate) struct UsageMeter {
    /// Of programs that have ended.
    ended: Tokens,
    /// Of the present one.
    present: Tokens,
    turns: u32,
    wall_time: Duration,
}

impl UsageMeter {
    /// The present program's own counters.
    pub(crate) const fn read(&mut self, tokens: Tokens) {
        self.present = tokens;
    }

    /// The program has ended; the next one counts from 0.
    pub(crate) fn program_ended(&mut self) {
        self.ended = self.ended.plus(std::mem::take(&mut self.present));
    }

    pub(crate) fn turn_ended(&mut self, took: Duration) {
        self.turns = self.turns.saturating_add(1);
        self.wall_time = self.wall_time.saturating_add(took);
    }

    /// What was spent in the attempt, with a running turn's time.
    pub(crate) fn usage(&self, running_turn: Duration) -> Usage {
        let tokens = self.ended.plus(self.present);
        Usage {
            input_tokens: tokens.input,
            cached_input_tokens: tokens.cached_input,
            output_tokens: tokens.output,
            turns: self.turns,
            wall_time: prost_types::Duration::try_from(self.wall_time.saturating_add(running_turn)).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_one_attempt_add_up() {
        let tokens = |input| Tokens {
            input,
            cached_input: 1,
            output: 2,
        };
        let mut meter = UsageMeter::default();
        meter.read(tokens(10));
        meter.read(tokens(30));
        meter.turn_ended(Duration::from_secs(2));
        meter.program_ended();
        meter.read(tokens(5));
        let usage = meter.usage(Duration::from_secs(1));
        assert_eq!(
            (usage.input_tokens, usage.cached_input_tokens, usage.output_tokens),
            (35, 2, 4)
        );
        assert_eq!(usage.turns, 1);
        assert_eq!(usage.wall_time.map(|time| time.seconds), Some(3));
    }
}
