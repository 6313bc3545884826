//! The price list: the prices of each model's tokens.

use std::{fs, io, path::Path};

use globset::{Glob, GlobMatcher};
use prost_types::Timestamp;
use serde::Deserialize;

use crate::domain::{
    settings::{Currency, Price},
    state::{session::Session, thread::Thread},
    time::UnixMillis,
};

/// Maximum size of the file, in bytes.
const MAX_BYTES: u64 = 1024 * 1024;
/// Maximum price of a million tokens, in units of the currency.
const MAX_PRICE: f64 = 1e9;

/// The prices of models in one currency. Without a file, the list is empty and its currency is US dollars.
#[derive(Clone, Debug)]
pub struct PriceList {
    currency: Currency,
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    model: GlobMatcher,
    provider: Option<String>,
    valid_from: UnixMillis,
    price: Price,
}

/// The file as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping with currency and models")]
struct File {
    currency: String,
    #[serde(default)]
    models: Vec<FileEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a mapping with model, provider, input, cached_input, output and valid_from"
)]
struct FileEntry {
    model: String,
    provider: Option<String>,
    input: f64,
    cached_input: Option<f64>,
    output: f64,
    valid_from: Option<String>,
}

impl Default for PriceList {
    fn default() -> Self {
        Self {
            currency: Currency::USD,
            entries: Vec::new(),
        }
    }
}

impl PriceList {
    /// Reads a price list.
    ///
    /// # Errors
    /// A sentence that names the file and its defect.
    pub fn read(path: &Path) -> Result<Self, String> {
        let wrong = |why: String| format!("the price list {}: {why}", path.display());
        let cannot_read = |error: io::Error| wrong(format!("cannot be read: {error}"));
        let size = fs::metadata(path).map_err(cannot_read)?.len();
        if size > MAX_BYTES {
            return Err(wrong(format!("has {size} bytes; at most {MAX_BYTES} are allowed")));
        }
        Self::parse(&fs::read_to_string(path).map_err(cannot_read)?).map_err(wrong)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let file: File = serde_yaml::from_str(text).map_err(|error| error.to_string())?;
        let entries = file.models.into_iter().map(Entry::parse);
        Ok(Self {
            currency: Currency::parse(&file.currency)?,
            entries: entries.collect::<Result<_, _>>()?,
        })
    }

    /// Returns the currency of new sessions.
    #[must_use]
    pub const fn currency(&self) -> Currency {
        self.currency
    }

    /// Returns the present price of a thread's model. `None` if the list has no price, or if the session's costs are in
    /// another currency.
    #[must_use]
    pub fn of_thread(&self, session: &Session, thread: &Thread, now: UnixMillis) -> Option<Price> {
        let role = &thread.spawned.role;
        self.of_model(session.settings.currency, &role.model, &role.provider, now)
    }

    /// Returns the present price of a model in a currency. The first entry that matches applies.
    #[must_use]
    pub fn of_model(&self, currency: Currency, model: &str, provider: &str, now: UnixMillis) -> Option<Price> {
        if currency != self.currency || model.is_empty() {
            return None;
        }
        let fits = |entry: &&Entry| {
            entry.valid_from <= now
                && entry.provider.as_deref().is_none_or(|name| name == provider)
                && entry.model.is_match(model)
        };
        self.entries.iter().find(fits).map(|entry| entry.price)
    }
}

impl Entry {
    fn parse(entry: FileEntry) -> Result<Self, String> {
        let FileEntry {
            model,
            provider,
            input,
            cached_input,
            output,
            valid_from,
        } = entry;
        let wrong = |why: String| format!("model {model:?}: {why}");
        let price = |key: &str, value: f64| match value {
            0.0..=MAX_PRICE => Ok(millionths(value)),
            _ => Err(wrong(format!("{key} is {value}; it must be 0 to {MAX_PRICE}"))),
        };
        let valid_from = match &valid_from {
            Some(date) => day(date)
                .ok_or_else(|| wrong(format!("valid_from is {date:?}; it must be a date such as 2026-01-31")))?,
            None => UnixMillis::new(0),
        };
        Ok(Self {
            valid_from,
            price: Price {
                input: price("input", input)?,
                cached_input: price("cached_input", cached_input.unwrap_or(input))?,
                output: price("output", output)?,
            },
            model: Glob::new(&model)
                .map_err(|error| wrong(error.to_string()))?
                .compile_matcher(),
            provider,
        })
    }
}

/// Returns a checked price in millionths.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn millionths(price: f64) -> u64 {
    (price * 1e6).round() as u64
}

/// Returns the beginning of a day in UTC.
fn day(date: &str) -> Option<UnixMillis> {
    let time: Timestamp = format!("{date}T00:00:00Z").parse().ok()?;
    let seconds = u64::try_from(time.seconds).ok()?;
    Some(UnixMillis::new(seconds.saturating_mul(1_000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price_of(list: &PriceList, model: &str, provider: &str, date: &str) -> Option<u64> {
        let price = list.of_model(list.currency, model, provider, day(date).unwrap());
        price.map(|price| price.input)
    }

    #[test]
    fn first_valid_matching_entry_applies() {
        let list = PriceList::parse(
            "currency: EUR\nmodels:\n  - {model: 'gpt-5*', input: 2, output: 10, valid_from: 2026-06-01}\n  - {model: \
             'gpt-5*', input: 1.25, cached_input: 0.125, output: 10}\n  - {model: 'x/*', provider: openrouter, input: 0, \
             output: 0}\n",
        )
        .unwrap();
        assert_eq!(price_of(&list, "gpt-5.2", "openai", "2026-05-31"), Some(1_250_000));
        assert_eq!(price_of(&list, "gpt-5.2", "openai", "2026-06-01"), Some(2_000_000));
        assert_eq!(
            price_of(&list, "x/y", "openrouter", "2026-06-01"),
            Some(0),
            "free is known"
        );
        assert_eq!(price_of(&list, "x/y", "openai", "2026-06-01"), None);
        assert_eq!(price_of(&list, "o9", "openai", "2026-06-01"), None);
        assert_eq!(price_of(&list, "", "openai", "2026-06-01"), None);
        let now = day("2026-06-01").unwrap();
        assert_eq!(list.of_model(Currency::USD, "gpt-5.2", "openai", now), None);
    }

    #[test]
    fn example_is_valid() {
        let list = PriceList::parse(include_str!("../../deploy/prices.example.yaml")).unwrap();
        assert_eq!(price_of(&list, "example-large-2", "x", "2026-12-31"), Some(5_000_000));
        assert_eq!(price_of(&list, "example-large-2", "x", "2027-01-01"), Some(4_000_000));
        assert_eq!(price_of(&list, "anything", "ollama", "2026-12-31"), Some(0));
    }

    #[test]
    fn errors_name_the_invalid_value() {
        for (text, why) in [
            ("models: []", "missing field `currency`"),
            ("currency: usd", "three capital letters"),
            ("currency: USD\nmodel: []", "unknown field `model`"),
            (
                "currency: USD\nmodels: [{model: a, input: -1, output: 1}]",
                "model \"a\": input is -1",
            ),
            (
                "currency: USD\nmodels: [{model: a, input: .nan, output: 1}]",
                "input is NaN",
            ),
            (
                "currency: USD\nmodels: [{model: a, input: 1}]",
                "missing field `output`",
            ),
            (
                "currency: USD\nmodels: [{model: '[', input: 1, output: 1}]",
                "model \"[\": ",
            ),
            (
                "currency: USD\nmodels: [{model: a, input: 1, output: 1, valid_from: soon}]",
                "must be a date such as 2026-01-31",
            ),
        ] {
            let error = PriceList::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
