//! The only module that uses the YAML library. The library is archived upstream; replacing it affects only this file.
//!
//! Parsing takes two passes. The first pass reads only the [`Shape`], rejects keys that serde would silently drop, and
//! counts the expansion of aliases. This count bounds the second pass, which reads into the caller's type.

use std::{cell::Cell, collections::BTreeSet, fmt};

use serde::{
    Deserializer,
    de::{DeserializeOwned, DeserializeSeed, EnumAccess, Error as _, MapAccess, SeqAccess, Visitor},
};

/// Maximum size of a YAML text, in bytes.
pub const MAX_BYTES: usize = 64 * 1024;
/// Maximum number of `[` and `{` in a text. The library's work for each token grows with the number of open brackets.
/// Closed brackets count too, because only the parser can tell which brackets are closed.
pub const MAX_BRACKETS: usize = 256;
/// Maximum expansion for each byte of a text. One unit is a node or a byte of a scalar. A text without aliases needs
/// less than two units for each byte.
const EXPANSION: usize = 4;
/// Additional expansion that every text is allowed.
const EXPANSION_BASE: usize = 256;

/// Maximum length of an error message, in characters.
const MAX_MESSAGE_CHARS: usize = 500;

/// The reason why a text is not the expected YAML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlError {
    /// The line in the text, from 1.
    pub line: Option<usize>,
    /// The problem.
    pub message: String,
}

/// The structure of a document without its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Nothing: null or an empty document.
    Null,
    /// Text, number or boolean.
    Scalar,
    /// A sequence.
    List(Vec<Shape>),
    /// A mapping, in the order of the text. Keys are unique.
    Map(Vec<(String, Shape)>),
}

impl Shape {
    /// Returns the keys and values of a mapping. Empty for any other shape.
    #[must_use]
    pub fn entries(&self) -> &[(String, Self)] {
        match self {
            Self::Map(entries) => entries,
            Self::Null | Self::Scalar | Self::List(_) => &[],
        }
    }

    /// Returns the items of a sequence. Empty for any other shape.
    #[must_use]
    pub fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            Self::Null | Self::Scalar | Self::Map(_) => &[],
        }
    }

    /// Returns whether the shape is a mapping with the key.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.entries().iter().any(|(name, _)| name == key)
    }

    /// Returns the value of a key, if the shape is a mapping with the key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entries()
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value)
    }

    /// Returns whether the shape is a mapping with a sequence under the key.
    #[must_use]
    pub fn has_list(&self, key: &str) -> bool {
        matches!(self.get(key), Some(Self::List(_)))
    }
}

/// Parses a document into a type and returns its shape. An empty document is an empty mapping.
///
/// # Errors
///
/// If the text is too large, expands too far, is not YAML, repeats a key, or does not fit the type.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<(T, Shape), YamlError> {
    if text.len() > MAX_BYTES {
        return Err(YamlError {
            line: None,
            message: format!("{} bytes; at most {MAX_BYTES} are allowed", text.len()),
        });
    }
    if brackets(text) > MAX_BRACKETS {
        return Err(YamlError {
            line: None,
            message: format!(
                "over {MAX_BRACKETS} opening brackets; write lists and mappings in block style, one entry on each line"
            ),
        });
    }
    let budget = Cell::new(EXPANSION * text.len() + EXPANSION_BASE);
    let shape = ShapeSeed { budget: &budget }.deserialize(serde_yaml::Deserializer::from_str(text))?;
    let value = match shape {
        Shape::Null => serde_yaml::from_str("{}")?,
        Shape::Scalar | Shape::List(_) | Shape::Map(_) => serde_yaml::from_str(text)?,
    };
    Ok((value, shape))
}

/// Returns the number of `[` and `{` of a text.
fn brackets(text: &str) -> usize {
    text.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count()
}

/// Returns an upper bound for the work of [`parse`] on a text, in units of about a byte of plain YAML.
#[must_use]
pub fn work(text: &str) -> usize {
    /// This number of open brackets doubles the work for each byte.
    const DOUBLING: usize = 32;
    let brackets = brackets(text);
    if text.len() > MAX_BYTES || brackets > MAX_BRACKETS {
        // Rejected before it is parsed.
        return 0;
    }
    text.len() + text.len() * brackets / DOUBLING
}

impl From<serde_yaml::Error> for YamlError {
    fn from(error: serde_yaml::Error) -> Self {
        Self {
            line: error.location().map(|location| location.line()),
            message: shorten(error.to_string()),
        }
    }
}

/// Truncates an error message, because it quotes a value that may be as large as the text.
fn shorten(message: String) -> String {
    match message.char_indices().nth(MAX_MESSAGE_CHARS) {
        Some((end, _)) => format!("{}...", &message[..end]),
        None => message,
    }
}

#[derive(Clone, Copy)]
struct ShapeSeed<'budget> {
    budget: &'budget Cell<usize>,
}

impl ShapeSeed<'_> {
    fn charge<E: serde::de::Error>(self, cost: usize) -> Result<(), E> {
        match self.budget.get().checked_sub(cost) {
            Some(left) => {
                self.budget.set(left);
                Ok(())
            }
            None => Err(E::custom(format!(
                "aliases expand the text to over {EXPANSION} times its size"
            ))),
        }
    }

    fn scalar<E: serde::de::Error>(self, length: usize) -> Result<Shape, E> {
        self.charge(1 + length)?;
        Ok(Shape::Scalar)
    }
}

impl<'de> DeserializeSeed<'de> for ShapeSeed<'_> {
    type Value = Shape;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Shape, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ShapeSeed<'_> {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("YAML without tags")
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<Shape, E> {
        self.scalar(0)
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<Shape, E> {
        self.scalar(0)
    }

    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<Shape, E> {
        self.scalar(0)
    }

    fn visit_i128<E: serde::de::Error>(self, _: i128) -> Result<Shape, E> {
        self.scalar(0)
    }

    fn visit_u128<E: serde::de::Error>(self, _: u128) -> Result<Shape, E> {
        self.scalar(0)
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<Shape, E> {
        self.scalar(0)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Shape, E> {
        self.scalar(text.len())
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<Shape, E> {
        self.visit_unit()
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Shape, E> {
        self.charge(1)?;
        Ok(Shape::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Shape, A::Error> {
        self.charge(1)?;
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Shape::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut mapping: A) -> Result<Shape, A::Error> {
        self.charge(1)?;
        let mut entries = Vec::new();
        let mut seen = BTreeSet::new();
        while let Some(key) = mapping.next_key::<String>()? {
            self.charge(1 + key.len())?;
            if key == "<<" {
                // Merged keys would not reach the typed pass, so a restriction could be lost.
                return Err(A::Error::custom("merge keys are not supported"));
            }
            if !seen.insert(key.clone()) {
                return Err(A::Error::custom(format!("duplicate field `{key}`")));
            }
            let value = mapping.next_value_seed(self)?;
            entries.push((key, value));
        }
        Ok(Shape::Map(entries))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, _: A) -> Result<Shape, A::Error> {
        Err(A::Error::custom("tags are not supported"))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Keys {
        name: Option<String>,
        list: Option<Vec<String>>,
    }

    fn error(text: &str) -> YamlError {
        parse::<Keys>(text).unwrap_err()
    }

    #[test]
    fn empty_document_is_an_empty_mapping() {
        for text in ["", "\n\n", "# only a comment\n", "~"] {
            assert_eq!(parse::<Keys>(text).unwrap().0, Keys::default(), "{text:?}");
        }
    }

    #[test]
    fn scalars_keep_their_spelling() {
        let (keys, _) = parse::<Keys>("name: 5.10\nlist: [1, true, wait]").unwrap();
        assert_eq!(keys.name.unwrap(), "5.10");
        assert_eq!(keys.list.unwrap(), ["1", "true", "wait"]);
    }

    #[test]
    fn shape_includes_unknown_keys() {
        let (_, shape) = parse::<Keys>("name: x\nother: {a: 1}\nlist: [1]").unwrap();
        assert!(shape.has("other"));
        assert!(!shape.has("a"));
        assert_eq!(shape.entries().len(), 3);
        assert_eq!(shape.entries()[2].1.items(), [Shape::Scalar]);
    }

    #[test]
    fn lossy_and_ambiguous_yaml_is_rejected() {
        for (text, part) in [
            ("name: a\nname: b", "duplicate field `name`"),
            ("other: 1\nother: 2", "duplicate field `other`"),
            ("base: &b {name: a}\n<<: *b", "merge keys are not supported"),
            ("name: !secret a", "tags are not supported"),
            ("list: wait", "expected a sequence"),
            ("list: [*foo]", "unknown anchor"),
            ("name: [", "did not find"),
            ("just text", "invalid type"),
        ] {
            let error = error(text);
            assert!(error.message.contains(part), "{text:?}: {}", error.message);
        }
    }

    #[test]
    fn errors_know_their_line() {
        assert_eq!(error("\n\nlist: wait").line, Some(3));
    }

    #[test]
    fn alias_bombs_are_rejected() {
        let mut text = "a: &a [\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\"]\n".to_owned();
        for (level, below) in ('b'..='i').zip('a'..) {
            text.push_str(&format!(
                "{level}: &{level} [{}]\n",
                vec![format!("*{below}"); 9].join(",")
            ));
        }
        // The library also limits repetition. Either limit may be reached first.
        let message = error(&text).message;
        assert!(
            message.contains("aliases expand") || message.contains("repetition"),
            "{message}"
        );

        let long = format!(
            "a: &a \"{}\"\nlist: [{}]",
            "x".repeat(30_000),
            vec!["*a"; 100].join(",")
        );
        assert!(error(&long).message.contains("aliases expand"));

        let large = format!("name: \"{}\"", "x".repeat(MAX_BYTES));
        assert!(error(&large).message.contains("at most 65536 are allowed"));

        let deep = format!("name: {}{}", "[".repeat(200), "]".repeat(200));
        assert!(!error(&deep).message.is_empty());
        // The library would take seconds for this text.
        let open = format!("name: {}", "[".repeat(60_000));
        assert!(error(&open).message.starts_with("over 256 opening brackets"));
    }

    #[test]
    fn aliases_within_the_bounds_work() {
        let (keys, _) = parse::<Keys>("name: &n a\nlist: [*n, b]").unwrap();
        assert_eq!(keys.list.unwrap(), ["a", "b"]);
    }
}
