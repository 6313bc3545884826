//! Agent files of other programs, as far as their keys have a place with us. What has none is reported and never
//! guessed; what restricts there restricts here at least as much; what would loosen anything is not taken over.

mod draft;
mod fields;
pub mod tools;

use std::fmt;

use crate::domain::{
    agents,
    diagnostic::Finding,
    malformed::{Located, Malformed},
    name::{AgentType, MAX_BYTES},
    template::{Parsed, Scope, Template},
};

use self::{draft::Draft, fields::Fields};

/// The programs whose agents can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ForeignFormat {
    /// `.claude/agents/*.md`.
    ClaudeCode,
    /// `.opencode/agents/**/*.md`.
    OpenCode,
    /// `.github/agents/*.agent.md`.
    Copilot,
    /// `.gemini/agents/*.md`.
    Gemini,
    /// `.codex/agents/*.toml`.
    Codex,
}

impl ForeignFormat {
    /// Every format, in the order of precedence.
    pub const ALL: &[Self] = &[
        Self::ClaudeCode,
        Self::OpenCode,
        Self::Copilot,
        Self::Gemini,
        Self::Codex,
    ];

    /// The name, as a configuration spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude",
            Self::OpenCode => "opencode",
            Self::Copilot => "copilot",
            Self::Gemini => "gemini",
            Self::Codex => "codex",
        }
    }

    /// The format of that name; surrounding space and case do not matter.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let name = text.trim().to_ascii_lowercase();
        Self::ALL.iter().copied().find(|format| format.as_str() == name)
    }

    /// The directories, seen from a project's directory or a home.
    #[must_use]
    pub const fn places(self, scope: Scope) -> &'static [&'static str] {
        match (self, scope) {
            (Self::ClaudeCode, _) => &[".claude/agents"],
            (Self::OpenCode, Scope::User) => &[
                ".opencode/agents",
                ".opencode/agent",
                ".config/opencode/agents",
                ".config/opencode/agent",
            ],
            (Self::OpenCode, Scope::Project | Scope::System) => &[".opencode/agents", ".opencode/agent"],
            (Self::Copilot, _) => &[".github/agents"],
            (Self::Gemini, _) => &[".gemini/agents"],
            (Self::Codex, _) => &[".codex/agents"],
        }
    }

    /// Whether agents may lie in folders of a directory, whose names are then part of theirs.
    #[must_use]
    pub const fn has_folders(self) -> bool {
        match self {
            Self::OpenCode => true,
            Self::ClaudeCode | Self::Copilot | Self::Gemini | Self::Codex => false,
        }
    }

    /// How the names of its files end.
    #[must_use]
    pub const fn ending(self) -> &'static str {
        match self {
            Self::ClaudeCode | Self::OpenCode | Self::Gemini => ".md",
            Self::Copilot => ".agent.md",
            Self::Codex => ".toml",
        }
    }

    /// The format that a file's name suggests, for one that lies in no place of any.
    #[must_use]
    pub fn by_ending(path: &str) -> Self {
        let telling = [Self::Codex, Self::Copilot];
        let found = telling.into_iter().find(|format| path.ends_with(format.ending()));
        found.unwrap_or(Self::ClaudeCode)
    }

    /// The key that names the agent; `None` where the file's stem does.
    const fn name_key(self) -> Option<&'static str> {
        match self {
            Self::ClaudeCode | Self::Gemini | Self::Codex => Some("name"),
            Self::OpenCode | Self::Copilot => None,
        }
    }
}

impl fmt::Display for ForeignFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Reads a foreign agent: its name, and what it says. A malformed one keeps the name that it gives itself, or else that
/// of its file.
///
/// # Errors
///
/// An agent that its author turned off, or that only its own program can run: it claims no name.
pub fn read(format: ForeignFormat, stem: &str, text: &str) -> Result<(AgentType, Parsed), Finding> {
    let fields = match Fields::read(format, text) {
        Ok(fields) => fields,
        Err(located) => return Ok(malformed(salvage(format, stem, text), located)),
    };
    if let Some(finding) = not_for_us(&fields) {
        return Err(finding);
    }
    let name = match name(format, stem, &fields) {
        Ok(name) => name,
        Err(located) => return Ok(malformed(AgentType::salvage(stem), located)),
    };
    let mut findings = Vec::new();
    let outcome = template(format, &name, &fields, &mut findings);
    Ok((name, Parsed::new(outcome, findings)))
}

fn malformed(name: AgentType, located: Located) -> (AgentType, Parsed) {
    (name, Parsed::new(Err(located), Vec::new()))
}

/// The name of a file that cannot be taken apart.
fn salvage(format: ForeignFormat, stem: &str, text: &str) -> AgentType {
    let written = format.name_key().and_then(|key| match format {
        ForeignFormat::Codex => toml_name(key, text),
        ForeignFormat::ClaudeCode | ForeignFormat::OpenCode | ForeignFormat::Copilot | ForeignFormat::Gemini => {
            agents::written_name(&[key], text)
        }
    });
    written.unwrap_or_else(|| AgentType::salvage(stem))
}

/// The name behind a key of what may be TOML, before its first table and before any text over several lines.
fn toml_name(key: &str, text: &str) -> Option<AgentType> {
    let is_plain = |line: &&str| !line.starts_with('[') && !line.contains("\"\"\"") && !line.contains("'''");
    let mut entries = text
        .lines()
        .take_while(is_plain)
        .filter_map(|line| line.split_once('='));
    let (_, value) = entries.find(|(written, _)| written.trim() == key)?;
    agents::name_in(value)
}

fn not_for_us(fields: &Fields) -> Option<Finding> {
    let is = |key: &str, value: &str| fields.get(key).is_some_and(|field| field.value == *value);
    if fields.get("disable").is_some_and(|field| field.value == true) {
        return Some(Finding::warning(
            fields.line("disable"),
            "not used: the agent is disabled",
        ));
    }
    is("kind", "remote").then(|| {
        Finding::warning(
            fields.line("kind"),
            "not used: a remote agent, which only its own program can reach",
        )
    })
}

fn name(format: ForeignFormat, stem: &str, fields: &Fields) -> Result<AgentType, Located> {
    let (written, line) = match format.name_key().and_then(|key| fields.get(key)) {
        Some(field) => (field.text()?, field.line),
        // Codex names a role by its file, too.
        None if matches!(format, ForeignFormat::ClaudeCode | ForeignFormat::Gemini) => {
            return Err(Malformed::MissingField("name").into());
        }
        None => (stem, None),
    };
    AgentType::parse(written).map_err(|_| {
        Malformed::Invalid {
            what: "name",
            why: format!("\"{written}\" is no agent_type; use at most {MAX_BYTES} letters, digits, - and _"),
        }
        .at(line)
    })
}

fn template(
    format: ForeignFormat,
    name: &AgentType,
    fields: &Fields,
    findings: &mut Vec<Finding>,
) -> Result<Template, Located> {
    let mut draft = Draft::new(format, fields.body.clone());
    for field in &fields.entries {
        draft.place(field, findings)?;
    }
    Ok(draft.finish(name)?)
}

#[cfg(test)]
mod tests;
