//! The lists of the role dialect, trimmed, sorted and without duplicates; and lists that may be written as one text.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};

use crate::domain::{
    diagnostic::Finding,
    finding_kind::FindingKind,
    frontmatter::Document,
    malformed::{Located, Malformed},
    yaml::Shape,
};

/// A list of names, written as a sequence or as one comma-separated text. Entries are kept as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameList(pub Vec<String>);

impl<'de> Deserialize<'de> for NameList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NameListVisitor)
    }
}

struct NameListVisitor;

impl<'de> Visitor<'de> for NameListVisitor {
    type Value = NameList;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of names or a comma-separated text")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<NameList, E> {
        Ok(NameList(text.split(',').map(str::to_owned).collect()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<NameList, A::Error> {
        let mut names = Vec::new();
        while let Some(name) = sequence.next_element::<String>()? {
            names.push(name);
        }
        Ok(NameList(names))
    }
}

/// The meaning of an empty list in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenEmpty {
    /// The list restricts nothing. The author may have meant "nothing is allowed", so a warning is added.
    Unrestricted,
    /// The list allows nothing.
    Nothing,
}

/// Normalises a list. `raw` is `None` if the key is absent or null.
///
/// # Errors
///
/// If all entries are blank. Dropping them would remove a restriction.
pub fn clean(
    key: &'static str,
    raw: Option<Vec<String>>,
    when_empty: WhenEmpty,
    from: (&Document, &Shape),
    findings: &mut Vec<Finding>,
) -> Result<Vec<String>, Located> {
    let (document, shape) = from;
    let stated = raw.unwrap_or_default();
    let had_entries = !stated.is_empty();
    let mut list: Vec<String> = stated.iter().map(|entry| entry.trim().to_owned()).collect();
    list.retain(|entry| !entry.is_empty());
    list.sort();
    list.dedup();
    if list.is_empty() && had_entries {
        return Err(Malformed::BlankList { key }.at(document.line_of(key)));
    }
    if list.is_empty() && when_empty == WhenEmpty::Unrestricted && shape.has(key) {
        let finding = Finding::warning(
            FindingKind::EmptyList,
            document.line_of(key),
            format!("an empty {key} restricts nothing"),
        );
        findings.push(finding.suggest(format!(
            "remove {key}, or deny with `deny_list: [\"*\"]` to allow no tool"
        )));
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(yaml: &str, raw: Option<&[&str]>, when_empty: WhenEmpty) -> (Result<Vec<String>, Located>, usize) {
        let document = Document::split(&format!("---\n{yaml}\n---\n")).unwrap();
        let shape = if yaml.is_empty() {
            Shape::Null
        } else {
            Shape::Map(vec![("allow_list".to_owned(), Shape::Null)])
        };
        let raw = raw.map(|list| list.iter().map(|entry| (*entry).to_owned()).collect());
        let mut findings = Vec::new();
        let list = clean("allow_list", raw, when_empty, (&document, &shape), &mut findings);
        (list, findings.len())
    }

    #[test]
    fn lists_are_trimmed_sorted_and_deduplicated() {
        let (list, findings) = run(
            "allow_list: [...]",
            Some(&[" wait ", "apply_patch", "", "wait"]),
            WhenEmpty::Unrestricted,
        );
        assert_eq!(list.unwrap(), ["apply_patch", "wait"]);
        assert_eq!(findings, 0);
    }

    #[test]
    fn empty_allow_list_is_unrestricted_with_warning() {
        assert_eq!(
            run("allow_list: []", Some(&[]), WhenEmpty::Unrestricted),
            (Ok(vec![]), 1)
        );
        assert_eq!(run("allow_list:", None, WhenEmpty::Unrestricted), (Ok(vec![]), 1));
        assert_eq!(run("", None, WhenEmpty::Unrestricted), (Ok(vec![]), 0));
        assert_eq!(run("allow_list: []", Some(&[]), WhenEmpty::Nothing), (Ok(vec![]), 0));
    }
}
