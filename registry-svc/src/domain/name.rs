//! The names of templates and personas. A value of these types is normalised and valid.

use std::{fmt, sync::Arc};

/// Maximum length of the name of a template or a persona, in bytes. Requests have the same limit.
pub const MAX_BYTES: usize = 128;

/// The error for an invalid agent type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid agent_type {given:?}; expected snake_case or kebab-case like \"worker\", \"my_custom_role\", or \
     \"my-custom-role\""
)]
pub struct InvalidAgentType {
    /// The name, trimmed, lower-cased and truncated to the maximum length.
    pub given: String,
}

/// The name of a role, profile or subagent: lower-case letters, digits, `-` and `_`; not empty, and not longer than
/// [`MAX_BYTES`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentType(Arc<str>);

impl AgentType {
    /// The name that stands for "no template".
    pub const DEFAULT: &str = "default";

    /// Trims and lower-cases a name, and checks its characters and length.
    ///
    /// # Errors
    ///
    /// The name is empty or too long, or has a character that is not allowed.
    pub fn parse(text: &str) -> Result<Self, InvalidAgentType> {
        let name = text.trim().to_ascii_lowercase();
        let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
        if name.len() > MAX_BYTES {
            let beginning: String = name.chars().take(MAX_BYTES).collect();
            return Err(InvalidAgentType {
                given: format!("{beginning}..."),
            });
        }
        if name.is_empty() || !name.bytes().all(legal) {
            return Err(InvalidAgentType { given: name });
        }
        Ok(Self(name.into()))
    }

    /// Derives a valid name from any text, for a file whose own name cannot be read. Invalid characters become `-`, and
    /// the result is truncated to the maximum length.
    #[must_use]
    pub fn salvage(text: &str) -> Self {
        let name: String = text
            .trim()
            .chars()
            .map(|letter| match letter.to_ascii_lowercase() {
                letter if letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_' => letter,
                _ => '-',
            })
            .take(MAX_BYTES)
            .collect();
        Self(if name.is_empty() { "unnamed".into() } else { name.into() })
    }

    /// Returns whether the name is `default`.
    #[must_use]
    pub fn is_default(&self) -> bool {
        &*self.0 == Self::DEFAULT
    }

    /// Returns whether the two names are spellings of the same name. Kebab case and snake case are equivalent.
    #[must_use]
    pub fn is_alias_of(&self, other: &Self) -> bool {
        let fold = |byte: u8| if byte == b'-' { b'_' } else { byte };
        self.0.bytes().map(fold).eq(other.0.bytes().map(fold))
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AgentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a graph template: a file's stem, case-sensitive; not blank, and not longer than [`MAX_BYTES`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GraphName(Arc<str>);

impl GraphName {
    /// Parses the stem of a graph template's file. Returns `None` if the stem is blank or too long. Surrounding
    /// whitespace is ignored.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let name = text.trim();
        (1..=MAX_BYTES).contains(&name.len()).then(|| Self(name.into()))
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A template name with its name space. `reviewer` may exist in both name spaces and then means two different
/// templates.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TemplateName {
    /// A role, profile, subagent or foreign agent.
    AgentType(AgentType),
    /// A graph template.
    RoleTemplate(GraphName),
}

impl TemplateName {
    /// Returns the bare name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::AgentType(name) => name.as_str(),
            Self::RoleTemplate(name) => name.as_str(),
        }
    }
}

impl fmt::Display for TemplateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The name of a persona: trimmed and lower-cased. In a valid template, it has at most [`MAX_BYTES`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PersonaName(Arc<str>);

impl PersonaName {
    /// Normalises a name. The result may be empty, but a template with an empty persona name is malformed.
    #[must_use]
    pub fn normalise(text: &str) -> Self {
        Self(text.trim().to_lowercase().into())
    }

    /// Returns whether the normalised name is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the name is longer than [`MAX_BYTES`].
    #[must_use]
    pub fn is_too_long(&self) -> bool {
        self.0.len() > MAX_BYTES
    }

    /// Returns the beginning of the name, for error messages.
    #[must_use]
    pub fn beginning(&self) -> String {
        self.0.chars().take(MAX_BYTES).collect()
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PersonaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_types_are_normalised() {
        for (given, name) in [
            ("worker", "worker"),
            (" Worker\t", "worker"),
            ("my-role_2", "my-role_2"),
        ] {
            assert_eq!(AgentType::parse(given).unwrap().as_str(), name);
        }
    }

    #[test]
    fn invalid_agent_type_is_rejected_with_exact_text() {
        for (given, shown) in [
            ("", ""),
            ("  ", ""),
            ("My Role", "my role"),
            ("a/b", "a/b"),
            ("é", "é"),
            ("a.b", "a.b"),
        ] {
            assert_eq!(
                AgentType::parse(given).unwrap_err().to_string(),
                format!(
                    "invalid agent_type \"{shown}\"; expected snake_case or kebab-case like \"worker\", \
                     \"my_custom_role\", or \"my-custom-role\""
                )
            );
        }
    }

    #[test]
    fn name_length_is_bounded() {
        let longest = "x".repeat(MAX_BYTES);
        assert_eq!(AgentType::parse(&longest).unwrap().as_str(), longest);
        assert_eq!(GraphName::parse(&longest).unwrap().as_str(), longest);
        for longer in [format!("{longest}x"), "é".repeat(MAX_BYTES), "x".repeat(1_000_000)] {
            let refusal = AgentType::parse(&longer).unwrap_err().to_string();
            assert!(refusal.len() < 4 * MAX_BYTES, "{refusal}");
            assert_eq!(GraphName::parse(&longer), None);
            assert_eq!(AgentType::salvage(&longer).as_str().len(), MAX_BYTES);
        }
    }

    #[test]
    fn any_text_converts_to_name() {
        for (text, name) in [
            ("My Notes.v2", "my-notes-v2"),
            ("é", "-"),
            (" ", "unnamed"),
            ("a_b", "a_b"),
        ] {
            let salvaged = AgentType::salvage(text);
            assert_eq!(salvaged.as_str(), name);
            assert_eq!(AgentType::parse(name).unwrap(), salvaged);
        }
    }

    #[test]
    fn kebab_and_snake_are_one_name() {
        let name = |text| AgentType::parse(text).unwrap();
        assert!(name("bug-hunter").is_alias_of(&name("bug_hunter")));
        assert!(!name("bug-hunter").is_alias_of(&name("bughunter")));
    }

    #[test]
    fn graph_names_keep_their_case() {
        assert_eq!(GraphName::parse(" Planner ").unwrap().as_str(), "Planner");
        assert_eq!(GraphName::parse(" "), None);
    }
}
