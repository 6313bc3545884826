//! The usage of a thread in its attempt. Programs count from their own start, but the supervisor counts per attempt.

use std::{collections::BTreeMap, time::Duration};

use troupe_proto::supervisor::v1::Usage;

/// A program's token counts since its start, and the cost that it reports for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tokens {
    pub(crate) input: u64,
    pub(crate) cached_input: u64,
    pub(crate) output: u64,
    /// The cost in millionths of a US dollar. 0: the program reports no cost.
    pub(crate) cost: u64,
}

impl Tokens {
    /// Returns whether the program reports no cost for some of these tokens.
    const fn is_unpriced(self) -> bool {
        self.cost == 0 && (self.input > 0 || self.output > 0)
    }

    /// Returns the difference to `base`.
    pub(crate) const fn minus(self, base: Self) -> Self {
        Self {
            input: self.input.saturating_sub(base.input),
            cached_input: self.cached_input.saturating_sub(base.cached_input),
            output: self.output.saturating_sub(base.output),
            cost: self.cost.saturating_sub(base.cost),
        }
    }

    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            cached_input: self.cached_input.saturating_add(other.cached_input),
            output: self.output.saturating_add(other.output),
            cost: self.cost.saturating_add(other.cost),
        }
    }

    /// Returns the maximum of each field.
    pub(crate) const fn max(self, other: Self) -> Self {
        self.plus(other.minus(self))
    }
}

/// Maximum number of calls of a turn that are counted by id.
const MAX_CALLS: usize = 4096;
/// Maximum length of a call's id, in bytes.
const MAX_CALL_ID_BYTES: usize = 256;

/// The tokens of a program's model calls since its start. Programs report one call several times. At the end of a turn,
/// a program reports either the total of the turn's calls or only the last call. The larger number counts: this report,
/// or the sum of the reported calls.
#[derive(Debug, Default)]
pub(crate) struct CallTokens {
    /// Tokens of completed turns.
    ended: Tokens,
    /// Tokens of the current turn.
    present: Tokens,
    /// Tokens of the current turn by call.
    calls: BTreeMap<String, Tokens>,
}

impl CallTokens {
    /// Records a call, which may already be known.
    pub(crate) fn call(&mut self, id: &str, tokens: Tokens) {
        if id.len() > MAX_CALL_ID_BYTES {
            return;
        }
        if self.calls.len() >= MAX_CALLS {
            self.calls.clear();
        }
        let known = self.calls.entry(id.to_owned()).or_default();
        let more = tokens.minus(*known);
        *known = known.plus(more);
        self.present = self.present.plus(more);
    }

    /// Returns whether a call of this turn was reported.
    pub(crate) fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Ends the turn, for which the program reports this total.
    pub(crate) fn turn_ended(&mut self, tokens: Tokens) {
        self.ended = self.total().max(self.ended.plus(tokens));
        self.present = Tokens::default();
        self.calls.clear();
    }

    /// Returns the total. It never decreases.
    pub(crate) const fn total(&self) -> Tokens {
        self.ended.plus(self.present)
    }
}

/// Returns the saturating sum of a program's numbers.
pub(crate) fn sum<const N: usize>(numbers: [u64; N]) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}

/// Returns an amount in US dollars as millionths. Amounts that cannot be a cost become 0.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(crate) fn millionths(dollars: Option<f64>) -> u64 {
    let dollars = dollars.filter(|dollars| (0.0..1e9).contains(dollars));
    (dollars.unwrap_or_default() * 1e6).round() as u64
}

/// Returns the unused part of a window, as a percentage. `None`: its size is 0.
pub(crate) fn percentage_left(used: u64, window: u64) -> Option<u32> {
    let left = u128::from(window.saturating_sub(used)) * 100;
    u32::try_from(left.checked_div(u128::from(window))?).ok()
}

/// Sums the usage of one attempt over its consecutive programs.
#[derive(Debug, Default)]
pub(crate) struct UsageMeter {
    /// Usage of programs that have ended.
    ended: Tokens,
    /// Whether a program that has ended reported no cost.
    is_unpriced: bool,
    /// Usage of the current program.
    present: Tokens,
    /// Usage before the current turn.
    before_turn: Tokens,
    turns: u32,
    wall_time: Duration,
}

impl UsageMeter {
    /// Records the current program's counters.
    pub(crate) const fn read(&mut self, tokens: Tokens) {
        self.present = tokens;
    }

    /// Records the end of the program. The next program counts from 0.
    pub(crate) fn program_ended(&mut self) {
        self.is_unpriced |= self.present.is_unpriced();
        self.ended = self.ended.plus(std::mem::take(&mut self.present));
    }

    pub(crate) fn turn_began(&mut self) {
        self.before_turn = self.ended.plus(self.present);
    }

    /// Returns the usage of the current turn.
    pub(crate) fn of_turn(&self) -> Tokens {
        self.ended.plus(self.present).minus(self.before_turn)
    }

    pub(crate) fn turn_ended(&mut self, took: Duration) {
        self.turns = self.turns.saturating_add(1);
        self.wall_time = self.wall_time.saturating_add(took);
    }

    /// Returns the usage of the attempt, including the duration of a running turn. The cost is 0 if a program used
    /// tokens and reported no cost.
    pub(crate) fn usage(&self, running_turn: Duration) -> Usage {
        let tokens = self.ended.plus(self.present);
        let is_unpriced = self.is_unpriced || self.present.is_unpriced();
        Usage {
            input_tokens: tokens.input,
            cached_input_tokens: tokens.cached_input,
            output_tokens: tokens.output,
            turns: self.turns,
            wall_time: prost_types::Duration::try_from(self.wall_time.saturating_add(running_turn)).ok(),
            cost_micros: if is_unpriced { 0 } else { tokens.cost },
            unpriced_tokens: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extreme_token_counts_add_up() {
        assert_eq!(sum([u64::MAX, 1]), u64::MAX);
        assert_eq!(percentage_left(u64::MAX, 10), Some(0));
        assert_eq!(percentage_left(0, u64::MAX), Some(100));
        assert_eq!(percentage_left(1, 0), None);
        let dollars = [Some(0.012_345), Some(-1.0), Some(f64::NAN), Some(1e300), None];
        assert_eq!(dollars.map(millionths), [12_345, 0, 0, 0, 0]);
    }

    #[test]
    fn calls_count_once_and_turns_use_larger_count() {
        let tokens = |input, output| Tokens {
            input,
            output,
            ..Tokens::default()
        };
        let mut calls = CallTokens::default();
        for (id, input, output) in [("a", 100, 1), ("a", 100, 1), ("b", 200, 1), ("a", 100, 7)] {
            calls.call(id, tokens(input, output));
        }
        assert_eq!(calls.total(), tokens(300, 8));
        // As OpenCode reports: only the last call.
        calls.turn_ended(tokens(200, 1));
        assert_eq!((calls.total(), calls.has_calls()), (tokens(300, 8), false));
        calls.call("c", tokens(50, 1));
        // As Claude Code reports: all calls with their complete output.
        calls.turn_ended(tokens(50, 30));
        assert_eq!(calls.total(), tokens(350, 38));
        calls.turn_ended(tokens(10, 0));
        assert_eq!(
            calls.total(),
            tokens(360, 38),
            "a program that reports usage only at the end"
        );
        calls.call(&"x".repeat(1_000), tokens(1, 1));
        for number in 0..2 * MAX_CALLS {
            calls.call(&number.to_string(), tokens(1, 0));
        }
        assert!(calls.calls.len() <= MAX_CALLS);
        assert_eq!(calls.total().input, 360 + 2 * MAX_CALLS as u64);
    }

    #[test]
    fn programs_of_one_attempt_add_up() {
        let tokens = |input| Tokens {
            input,
            cached_input: 1,
            output: 2,
            cost: input * 10,
        };
        let mut meter = UsageMeter::default();
        meter.read(tokens(10));
        meter.turn_began();
        meter.read(tokens(30));
        assert_eq!(meter.of_turn().input, 20);
        meter.turn_ended(Duration::from_secs(2));
        meter.program_ended();
        meter.read(tokens(5));
        let usage = meter.usage(Duration::from_secs(1));
        assert_eq!(
            (usage.input_tokens, usage.cached_input_tokens, usage.output_tokens),
            (35, 2, 4)
        );
        assert_eq!((usage.cost_micros, usage.turns), (350, 1));
        meter.program_ended();
        meter.read(Tokens { cost: 0, ..tokens(1) });
        assert_eq!(
            meter.usage(Duration::ZERO).cost_micros,
            0,
            "the current program reports no cost"
        );
        meter.program_ended();
        meter.read(tokens(1));
        assert_eq!(
            meter.usage(Duration::ZERO).cost_micros,
            0,
            "an earlier program reported no cost"
        );
        assert_eq!(usage.wall_time.map(|time| time.seconds), Some(3));
    }
}
