//! Splitting of a template file into YAML frontmatter and body, shared by all YAML dialects.

use crate::domain::malformed::{Located, Malformed};

/// The line that opens and closes frontmatter.
const FENCE: &str = "---";

/// A template file split into frontmatter and body. Both parts use `\n` line endings, independent of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The YAML between the fences. An empty line replaces the opening fence so that line numbers match the file.
    /// `None`: the file has no frontmatter, which is valid.
    pub yaml: Option<String>,
    /// Everything after the closing fence.
    pub body: String,
    /// The number of the body's first line in the file.
    pub body_line: usize,
}

impl Document {
    /// Splits a file's text. A byte order mark and CRLF are accepted.
    ///
    /// # Errors
    ///
    /// [`Malformed::UnterminatedFrontmatter`]: reading such a file as body text would drop its restrictions.
    pub fn split(text: &str) -> Result<Self, Located> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines: Vec<&str> = text.lines().collect();
        if lines.first().is_none_or(|first| first.trim() != FENCE) {
            return Ok(Self {
                yaml: None,
                body: lines.join("\n"),
                body_line: 1,
            });
        }
        let closer = lines.iter().skip(1).position(|line| line.trim() == FENCE);
        let Some(length) = closer else {
            return Err(Malformed::UnterminatedFrontmatter.at(Some(1)));
        };
        let (yaml, body) = lines.split_at(length + 1);
        let body = body.get(1..).unwrap_or_default();
        let yaml = yaml.get(1..).unwrap_or_default();
        Ok(Self {
            yaml: Some(format!("\n{}\n", yaml.join("\n"))),
            body: body.join("\n"),
            body_line: length + 3,
        })
    }

    /// Returns the lines between the fences as the file has them, without a copy. Empty if [`Self::split`] finds no
    /// frontmatter.
    #[must_use]
    pub fn header(text: &str) -> &str {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut lines = text.split_inclusive('\n');
        let Some(opener) = lines.next().filter(|line| line.trim() == FENCE) else {
            return "";
        };
        let start = opener.len();
        let mut end = start;
        for line in lines {
            if line.trim() == FENCE {
                return text.get(start..end).unwrap_or_default();
            }
            end += line.len();
        }
        ""
    }

    /// Returns the body byte for byte as it is in the file. `text` must be the text that was passed to [`Self::split`].
    #[must_use]
    pub fn verbatim_body<'text>(&self, text: &'text str) -> &'text str {
        let lines = text.split_inclusive('\n').take(self.body_line - 1);
        let length: usize = lines.map(str::len).sum();
        text.get(length..).unwrap_or_default()
    }

    /// Returns the line where a key has the given value, ignoring case. `None` if the key and the value are on
    /// different lines.
    #[must_use]
    pub fn line_of_pair(&self, key: &str, value: &str) -> Option<usize> {
        let value = value.to_lowercase();
        let is_pair = |line: &str| {
            let line = line.to_lowercase();
            line.match_indices(key).any(|(start, _)| {
                let rest = line.get(start + key.len()..).unwrap_or_default();
                let rest = rest.trim_start_matches(['"', '\'', ' ']).strip_prefix(':');
                rest.is_some_and(|rest| {
                    let rest = rest.trim_start_matches(['"', '\'', ' ']).strip_prefix(value.as_str());
                    rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '-'))
                })
            })
        };
        let yaml = self.yaml.as_deref()?;
        yaml.lines().position(is_pair).map(|index| index + 1)
    }

    /// Adds the line of the persona's declaration, if the defect is about a persona and has no line yet. `key` is the
    /// key that names a persona.
    #[must_use]
    pub fn locate_persona(&self, mut located: Located, key: &str) -> Located {
        if located.line.is_none()
            && let Malformed::MissingBlock(name) | Malformed::RepeatedPersona(name) | Malformed::LongPersona(name) =
                &located.why
        {
            located.line = self.line_of_pair(key, name.as_str());
        }
        located
    }

    /// Returns the line of a frontmatter key, if the key is at the start of a line.
    #[must_use]
    pub fn line_of(&self, key: &str) -> Option<usize> {
        let is_key = |line: &str| {
            line.trim_start_matches([' ', '-', '"', '\''])
                .strip_prefix(key)
                .is_some_and(|rest| rest.trim_start_matches(['"', '\'', ' ']).starts_with(':'))
        };
        let yaml = self.yaml.as_deref()?;
        yaml.lines().position(is_key).map(|index| index + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_split_into_frontmatter_and_body() {
        let rows: &[(&str, Option<&str>, &str, usize)] = &[
            ("---\na: 1\n---\nbody\n", Some("\na: 1\n"), "body", 4),
            ("---\r\na: 1\r\n---\r\none\r\ntwo\r\n", Some("\na: 1\n"), "one\ntwo", 4),
            ("\u{feff}---\na: 1\n---\nbody", Some("\na: 1\n"), "body", 4),
            ("  --- \na: 1\n ---\t\nbody", Some("\na: 1\n"), "body", 4),
            ("---\n---\nbody", Some("\n\n"), "body", 3),
            ("---\na: 1\n---", Some("\na: 1\n"), "", 4),
            ("no frontmatter\n---\n", None, "no frontmatter\n---", 1),
            ("\n---\na: 1\n---\n", None, "\n---\na: 1\n---", 1),
            ("", None, "", 1),
            ("---\na: 1\n---\none\n---\ntwo", Some("\na: 1\n"), "one\n---\ntwo", 4),
        ];
        for (text, yaml, body, line) in rows {
            let document = Document::split(text).unwrap();
            assert_eq!(document.yaml.as_deref(), *yaml, "{text:?}");
            assert_eq!(document.body, *body, "{text:?}");
            assert_eq!(document.body_line, *line, "{text:?}");
        }
    }

    #[test]
    fn header_equals_yaml_of_split() {
        for text in [
            "---\na: 1\n---\nbody\n",
            "\u{feff}---\na: 1\nb: [\n---\n---\n",
            "---\n---\nbody",
            "no frontmatter\n---\n",
            "---\na: 1\n",
            "",
        ] {
            let yaml = Document::split(text).ok().and_then(|document| document.yaml);
            assert_eq!(
                Document::header(text).trim(),
                yaml.unwrap_or_default().trim(),
                "{text:?}"
            );
        }
    }

    #[test]
    fn unclosed_frontmatter_is_an_error() {
        for text in ["---", "---\na: 1\n", "\u{feff}---\r\ndeny_list: [x]\r\nbody"] {
            assert_eq!(
                Document::split(text),
                Err(Malformed::UnterminatedFrontmatter.at(Some(1))),
                "{text:?}"
            );
        }
    }

    #[test]
    fn line_of_pair_is_found() {
        let document = Document::split("---\nl:\n  - name: ab\n  - {name: 'A', x: y}\n---\nname: c").unwrap();
        for (value, line) in [("ab", Some(3)), ("a", Some(4)), ("c", None)] {
            assert_eq!(document.line_of_pair("name", value), line, "{value}");
        }
    }

    #[test]
    fn line_of_key_is_found() {
        let document = Document::split("---\ndescription: x\nallow_list:\n  - tool\n---\nbody: x").unwrap();
        assert_eq!(document.line_of("description"), Some(2));
        assert_eq!(document.line_of("allow_list"), Some(3));
        assert_eq!(document.line_of("allow"), None);
        assert_eq!(document.line_of("body"), None);
    }
}
