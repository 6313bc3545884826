//! What people are shown of a tool call: no secrets, and little of anything.

use serde_json::{Map, Value};

use crate::text::one_line;

/// The longest detail of a tool call, in characters.
pub(crate) const MAX_DETAIL_CHARS: usize = 160;
/// What stands for what is not shown.
const REDACTED: &str = "<redacted>";
/// A text that is longer may hold anything.
const LONGEST_TEXT: usize = 80;
/// How deep values are shown, and how much of a list.
const MAX_DEPTH: usize = 3;
const MAX_ITEMS: usize = 6;
/// How many files a patch names.
const MAX_FILES: usize = 3;
/// The keys whose values are secret, whatever they are.
const SECRET_KEYS: &[&str] = &[
    "authorization",
    "api_key",
    "apikey",
    "token",
    "secret",
    "password",
    "cookie",
    "set-cookie",
    "session",
    "private_key",
    "privatekey",
    "bearer",
];

/// The arguments of a call as they may be shown and asked about.
pub(crate) fn arguments(value: &Value) -> Value {
    below(value, MAX_DEPTH)
}

fn below(value: &Value, depth: usize) -> Value {
    match value {
        Value::String(text) if text.chars().count() > LONGEST_TEXT => REDACTED.into(),
        Value::Array(_) | Value::Object(_) if depth == 0 => REDACTED.into(),
        Value::Array(items) => items
            .iter()
            .take(MAX_ITEMS)
            .map(|item| below(item, depth - 1))
            .collect(),
        Value::Object(fields) => {
            let shown = fields.iter().map(|(key, value)| {
                let secret = SECRET_KEYS.iter().any(|secret| key.eq_ignore_ascii_case(secret));
                let value = if secret {
                    REDACTED.into()
                } else {
                    below(value, depth - 1)
                };
                (key.clone(), value)
            });
            Value::Object(shown.collect::<Map<_, _>>())
        }
        plain => plain.clone(),
    }
}

/// A call in one line.
pub(crate) fn detail(text: &str) -> String {
    one_line(text, MAX_DETAIL_CHARS)
}

/// The arguments of a call in one line.
pub(crate) fn arguments_in_line(value: &Value) -> String {
    detail(&arguments(value).to_string())
}

/// A patch in one line: how many files it adds, changes and deletes, and the first of them.
pub(crate) fn patch(added: usize, changed: usize, deleted: usize, files: &[String]) -> String {
    let shown = files
        .iter()
        .take(MAX_FILES)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    let rest = match files.len().saturating_sub(MAX_FILES) {
        0 => String::new(),
        more => format!(" (+{more} more)"),
    };
    detail(&format!(
        "A:{added} M:{changed} D:{deleted} ({} files): {shown}{rest}",
        files.len()
    ))
}

/// A web address without what may be secret in it.
pub(crate) fn url(address: &str) -> String {
    let end = address.find(['?', '#']).unwrap_or(address.len());
    detail(&format!("open: {}", &address[..end]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_and_much_of_anything_are_not_shown() {
        let shown = arguments(&json!({
            "path": "a",
            "API_KEY": 7,
            "long": "x".repeat(81),
            "list": [1, 2, 3, 4, 5, 6, 7],
            "deep": {"er": {"still": {"more": 1}}},
        }));
        let expected = json!({
            "path": "a",
            "API_KEY": REDACTED,
            "long": REDACTED,
            "list": [1, 2, 3, 4, 5, 6],
            "deep": {"er": {"still": REDACTED}},
        });
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_patch_and_an_address_are_one_line() {
        let files = ["a", "b", "c", "d"].map(str::to_owned);
        assert_eq!(patch(1, 2, 1, &files), "A:1 M:2 D:1 (4 files): a, b, c (+1 more)");
        assert_eq!(url("https://x/y?token=1#z"), "open: https://x/y");
        assert_eq!(detail(&"x".repeat(500)).chars().count(), MAX_DETAIL_CHARS);
    }
}
