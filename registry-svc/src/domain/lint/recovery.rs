//! Error recovery. The parsers stop at the first error, so the part with the error is replaced by a valid one,
//! and the text is parsed again. Lines keep their numbers, except after an inserted line.

use crate::domain::malformed::Malformed;

const FENCE: &str = "---";
/// A valid name that no author uses. No finding about the author's text mentions it.
const TEXT: &str = "placeholder-of-lint";
/// Valid values of keys that a dialect may require.
const PLACEHOLDERS: &[(&str, &str)] = &[
    ("agent_type", TEXT),
    ("name", TEXT),
    ("description", TEXT),
    ("model", TEXT),
    ("color", "blue"),
];
/// Keys that declare personas. Without these keys, the body must not have persona blocks.
const PERSONA_KEYS: &[&str] = &["agent_names", "agent_persons"];

/// A text without one of its errors.
pub(super) struct Recovered {
    pub(super) text: String,
    /// Whether a second line was inserted, which moves all later lines.
    pub(super) inserted: bool,
}

/// Removes an error from a text with YAML frontmatter. `line` is the error's line, from 1. Returns `None` if the error
/// cannot be separated from the rest.
pub(super) fn without(text: &str, why: &Malformed, line: Option<usize>) -> Option<Recovered> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let first = lines.first()?.trim_start_matches('\u{feff}');
    if first.trim() != FENCE {
        return None;
    }
    let end = lines.iter().skip(1).position(|line| line.trim() == FENCE)? + 1;
    let mut inserted = false;
    match (why, line) {
        (Malformed::MissingField(key) | Malformed::MissingRequired(key), None | Some(1)) => {
            lines.insert(1, format!("{key}: {}", placeholder(key)?));
            inserted = true;
        }
        (Malformed::MissingBlock(name), _) => {
            lines.extend([format!("<!-- agent_name: {name} -->"), TEXT.to_owned()]);
        }
        (Malformed::UndeclaredBlock(_) | Malformed::RepeatedBlock(_), Some(line)) => {
            lines.get_mut(line - 1)?.clear();
        }
        (Malformed::EmptyBlock(_), Some(line)) => match lines.get_mut(line) {
            Some(next) if next.trim().is_empty() => TEXT.clone_into(next),
            Some(_) => return None,
            None => lines.push(TEXT.to_owned()),
        },
        (_, Some(line)) if line <= end => replace_key(&mut lines, line - 1, end)?,
        (_, _) => return None,
    }
    let text = lines.join("\n");
    Some(Recovered { text, inserted })
}

/// Removes the top-level key around a line, or replaces its value if the key may be required.
fn replace_key(lines: &mut [String], line: usize, end: usize) -> Option<()> {
    let start = (1..=line).rev().find(|index| key_at(lines, *index).is_some())?;
    let key = key_at(lines, start)?.to_owned();
    let next = (start + 1..end).find(|index| key_at(lines, *index).is_some());
    lines
        .get_mut(start..next.unwrap_or(end))?
        .iter_mut()
        .for_each(String::clear);
    if let Some(value) = placeholder(&key) {
        *lines.get_mut(start)? = format!("{key}: {value}");
    }
    if PERSONA_KEYS.contains(&key.as_str()) {
        let body = lines.get_mut(end + 1..)?;
        body.iter_mut().for_each(String::clear);
        TEXT.clone_into(body.first_mut()?);
    }
    Some(())
}

/// Returns the key at the start of a line.
pub(super) fn key_at(lines: &[String], index: usize) -> Option<&str> {
    let line = lines.get(index)?;
    let (key, _) = line.split_once(':')?;
    let is_key = !line.starts_with([' ', '\t', '-', '#', '[', ']', '{', '}', ',']);
    is_key.then(|| key.trim().trim_matches(['"', '\'']))
}

fn placeholder(key: &str) -> Option<&'static str> {
    PLACEHOLDERS
        .iter()
        .find(|(name, _)| *name == key)
        .map(|(_, value)| *value)
}
