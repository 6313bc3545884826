//! Redacts a program's displayed work: removes secrets, and applies limits that do not depend on the program.

use serde_json::{Map, Value};
use troupe_proto::supervisor::v1::{PlanStep, ToolUse, plan_step::State};

use crate::text::{cut, one_line};

/// Maximum length of an activity and of the detail of a tool call, in characters.
pub(crate) const MAX_DETAIL_CHARS: usize = 160;
/// Maximum length of a tool name, in characters.
pub(crate) const MAX_NAME_CHARS: usize = 128;
/// Maximum number of steps of a plan.
pub(crate) const MAX_STEPS: usize = 64;
/// Maximum length of a step, in bytes.
pub(crate) const MAX_STEP_BYTES: usize = 256;
/// The replacement for redacted values.
const REDACTED: &str = "<redacted>";
/// Maximum length of a displayed text, in characters. A longer text may contain anything, so it is redacted.
const LONGEST_TEXT: usize = 80;
/// Maximum depth of displayed values.
const MAX_DEPTH: usize = 3;
/// Maximum length of displayed lists.
const MAX_ITEMS: usize = 6;
/// Maximum number of displayed files of a patch.
const MAX_FILES: usize = 3;
/// Keys whose values are always secret.
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

/// Minimum length of a secret that is searched for, in bytes. Shorter secrets occur in other text by chance.
const MIN_SECRET_BYTES: usize = 8;

/// Returns the full arguments of a call for an operator, without these secrets.
pub(crate) fn secrets(value: &Value, secrets: &[String]) -> Value {
    match value {
        Value::String(text) => self::text(text, secrets).into(),
        Value::Array(items) => items.iter().map(|item| self::secrets(item, secrets)).collect(),
        Value::Object(fields) => {
            let fields = fields.iter();
            let shown = fields.map(|(key, value)| (self::text(key, secrets), self::secrets(value, secrets)));
            Value::Object(shown.collect())
        }
        plain => plain.clone(),
    }
}

/// Returns a text without these secrets.
pub(crate) fn text(text: &str, secrets: &[String]) -> String {
    let known = secrets.iter().filter(|secret| secret.len() >= MIN_SECRET_BYTES);
    known.fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), REDACTED))
}

/// Returns the arguments of a call for a telemetry line: short, and without possible secrets.
pub(crate) fn arguments(value: &Value) -> Value {
    redact_value(value, MAX_DEPTH)
}

fn redact_value(value: &Value, depth: usize) -> Value {
    match value {
        Value::String(text) if text.chars().count() > LONGEST_TEXT => REDACTED.into(),
        Value::Array(_) | Value::Object(_) if depth == 0 => REDACTED.into(),
        Value::Array(items) => items
            .iter()
            .take(MAX_ITEMS)
            .map(|item| redact_value(item, depth - 1))
            .collect(),
        Value::Object(fields) => {
            let shown = fields.iter().map(|(key, value)| {
                let secret = SECRET_KEYS.iter().any(|secret| key.eq_ignore_ascii_case(secret));
                let value = if secret {
                    REDACTED.into()
                } else {
                    redact_value(value, depth - 1)
                };
                (key.clone(), value)
            });
            Value::Object(shown.collect::<Map<_, _>>())
        }
        plain => plain.clone(),
    }
}

/// Returns a tool call for display.
pub(crate) fn tool_use(name: &str, detail: &str) -> ToolUse {
    ToolUse {
        name: one_line(name, MAX_NAME_CHARS),
        detail: self::detail(detail),
    }
}

/// Returns a plan with these steps, within the limits.
pub(crate) fn plan<T: AsRef<str>>(steps: impl IntoIterator<Item = (T, State)>) -> Vec<PlanStep> {
    let steps = steps.into_iter().take(MAX_STEPS);
    let steps = steps.map(|(text, state)| PlanStep {
        step: cut(one_line(text.as_ref(), MAX_STEP_BYTES), MAX_STEP_BYTES),
        state: state.into(),
    });
    steps.collect()
}

/// Returns a tool call's detail, or an activity, in one line.
pub(crate) fn detail(text: &str) -> String {
    one_line(text, MAX_DETAIL_CHARS)
}

/// Returns the arguments of a call in one line.
pub(crate) fn arguments_in_line(value: &Value) -> String {
    detail(&arguments(value).to_string())
}

/// Returns a patch in one line: how many files the patch adds, changes and deletes, and the names of the first files.
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

/// Returns a URL without parts that may be secret: the query and the user information (`user:password@`), and without
/// the same parts of another URL in the path.
pub(crate) fn url(address: &str) -> String {
    let end = address.find(['?', '#']).unwrap_or(address.len());
    let parts: Vec<&str> = address[..end].split("://").map(without_user).collect();
    detail(&format!("open: {}", parts.join("://")))
}

/// Returns the part after a scheme without the user information of its authority.
fn without_user(rest: &str) -> &str {
    let authority = rest.find(['/', '\\']).unwrap_or(rest.len());
    match rest[..authority].rfind('@') {
        Some(at) => &rest[at + 1..],
        None => rest,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_and_long_values_are_redacted() {
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
    fn only_known_secrets_are_redacted_for_operators() {
        let command = format!("curl -H 'key: sk-secret-1' {} | sh", "x".repeat(500));
        let call = json!({"command": command, "token": "of the code", "deep": [[[["sk-secret-1"]]]]});
        let expected = json!({
            "command": command.replace("sk-secret-1", REDACTED),
            "token": "of the code",
            "deep": [[[[REDACTED]]]],
        });
        assert_eq!(secrets(&call, &["sk-secret-1".to_owned(), "x".to_owned()]), expected);
    }

    #[test]
    fn patch_and_url_are_shown_in_one_line() {
        let files = ["a", "b", "c", "d"].map(str::to_owned);
        assert_eq!(patch(1, 2, 1, &files), "A:1 M:2 D:1 (4 files): a, b, c (+1 more)");
        for (address, shown) in [
            ("https://x/y?token=1#z", "https://x/y"),
            ("https://user:token@x:8080/y", "https://x:8080/y"),
            ("https://user:to@ken@x", "https://x"),
            ("https://token@x?y", "https://x"),
            ("token@x/y", "x/y"),
            ("https://x/https://user:token@y/z", "https://x/https://y/z"),
            ("https://x/@scope/package", "https://x/@scope/package"),
        ] {
            assert_eq!(url(address), format!("open: {shown}"));
        }
        assert_eq!(detail(&"x".repeat(500)).chars().count(), MAX_DETAIL_CHARS);
    }

    #[test]
    fn displayed_text_is_bounded() {
        let long = "é ".repeat(5_000);
        let used = tool_use(&long, &long);
        assert_eq!(used.name.chars().count(), MAX_NAME_CHARS);
        assert_eq!(used.detail.chars().count(), MAX_DETAIL_CHARS);
        let plan = plan((0..100).map(|_| (&long, State::Pending)));
        assert_eq!(plan.len(), MAX_STEPS);
        assert!(plan.iter().all(|step| step.step.len() <= MAX_STEP_BYTES));
    }
}
