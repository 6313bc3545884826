//! The keys and the prompt of a foreign file, independent of its syntax.

use serde_json::{Map, Value};

use crate::domain::{
    foreign::ForeignFormat,
    frontmatter::Document,
    malformed::{Located, Malformed},
    toml, yaml,
};

/// Maximum number of keys in a file. No agent program defines half as many keys. The line of each key is searched in
/// the text, so the limit bounds that work.
pub(super) const MAX_KEYS: usize = 100;

/// The Codex key that holds the prompt.
pub(super) const PROMPT: &str = "developer_instructions";

/// One key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) key: String,
    pub(super) value: Value,
    pub(super) line: Option<usize>,
    /// The keys of a mapping, in the order of the text. In some formats, the last matching key applies.
    pub(super) order: Vec<String>,
}

impl Field {
    pub(super) fn wrong(&self, expected: &'static str) -> Located {
        let key = self.key.clone();
        Malformed::WrongType { key, expected }.at(self.line)
    }

    pub(super) fn text(&self) -> Result<&str, Located> {
        self.value.as_str().ok_or_else(|| self.wrong("a text"))
    }

    /// Returns a list of texts, or the entries of one comma-separated text. A key without a value is an empty list,
    /// because an author who writes the key intends to restrict something.
    pub(super) fn list(&self, split: impl Fn(&str) -> Vec<String>) -> Result<Vec<String>, Located> {
        let entries = match &self.value {
            Value::Null => Vec::new(),
            Value::String(text) => split(text),
            Value::Array(items) => items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect::<Option<_>>()
                .ok_or_else(|| self.wrong("a list of texts"))?,
            Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                return Err(self.wrong("a list of texts or a comma-separated text"));
            }
        };
        let trimmed = entries.iter().map(|entry| entry.trim().to_owned());
        Ok(trimmed.filter(|entry| !entry.is_empty()).collect())
    }

    /// Returns the entries of a mapping, in the order of the text.
    pub(super) fn entries(&self) -> Option<Vec<(&str, &Value)>> {
        let map = self.value.as_object()?;
        let ordered = self.order.iter().filter_map(|key| map.get_key_value(key));
        Some(ordered.map(|(key, value)| (key.as_str(), value)).collect())
    }
}

/// The parsed keys and body of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) entries: Vec<Field>,
    /// The text after the frontmatter. Empty for TOML.
    pub(super) body: String,
}

impl Fields {
    pub(super) fn read(format: ForeignFormat, text: &str) -> Result<Self, Located> {
        match format {
            ForeignFormat::ClaudeCode | ForeignFormat::OpenCode | ForeignFormat::Copilot | ForeignFormat::Gemini => {
                Self::markdown(text)
            }
            ForeignFormat::Codex => Self::toml(text),
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Field> {
        self.entries.iter().find(|field| field.key == key)
    }

    pub(super) fn line(&self, key: &str) -> Option<usize> {
        self.get(key)?.line
    }

    fn markdown(text: &str) -> Result<Self, Located> {
        let document = Document::split(text)?;
        let yaml = document.yaml.as_deref().ok_or(Malformed::NoFrontmatter)?;
        let (mut values, shape) = yaml::parse::<Map<String, Value>>(yaml)
            .map_err(|error| Malformed::InvalidYaml(error.message).at(error.line))?;
        bound(shape.entries().len())?;
        let fields = shape.entries().iter().filter_map(|(key, shape)| {
            Some(Field {
                key: key.clone(),
                value: values.remove(key)?,
                line: document.line_of(key),
                order: shape.entries().iter().map(|(key, _)| key.clone()).collect(),
            })
        });
        Ok(Self {
            entries: fields.collect(),
            body: document.body.trim().to_owned(),
        })
    }

    fn toml(text: &str) -> Result<Self, Located> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let values = toml::parse::<Map<String, Value>>(text)
            .map_err(|error| Malformed::InvalidToml(error.message).at(error.line))?;
        bound(values.len())?;
        // Other formats have the prompt after the frontmatter.
        let prompt = values.get(PROMPT).and_then(Value::as_str).unwrap_or_default();
        let rest = text.len().saturating_sub(prompt.len());
        if rest > yaml::MAX_BYTES {
            let why = format!("{rest} bytes outside {PROMPT}; at most {} are allowed", yaml::MAX_BYTES);
            return Err(Malformed::InvalidToml(why).into());
        }
        let fields = values.into_iter().map(|(key, value)| Field {
            line: line_of(text, &key),
            order: value
                .as_object()
                .map_or_else(Vec::new, |map| map.keys().cloned().collect()),
            key,
            value,
        });
        Ok(Self {
            entries: fields.collect(),
            body: String::new(),
        })
    }
}

fn bound(keys: usize) -> Result<(), Malformed> {
    if keys > MAX_KEYS {
        return Err(Malformed::TooManyKeys { max: MAX_KEYS });
    }
    Ok(())
}

/// Returns the line on which a TOML key or table starts.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let starts = |line: &str| {
        let rest = line.trim_start_matches([' ', '\t', '[', '"', '\'']).strip_prefix(key);
        rest.is_some_and(|rest| {
            rest.trim_start_matches(['"', '\'', ' ', '\t'])
                .starts_with(['=', ']', '.'])
        })
    };
    text.lines().position(starts).map(|index| index + 1)
}
