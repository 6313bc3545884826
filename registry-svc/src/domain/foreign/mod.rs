//! Import of agent files of other programs.
//!
//! Keys with an equivalent are translated; keys without one are reported and never guessed. A restriction in the
//! original is at least as strict here. Settings that would loosen a restriction are not imported.

mod draft;
mod fields;
pub mod tools;

use std::fmt;

use crate::domain::{
    agents,
    diagnostic::Finding,
    finding_kind::FindingKind,
    malformed::{Located, Malformed},
    name::{AgentType, MAX_BYTES},
    template::{Parsed, Scope, Template},
};

use self::{draft::ImportDraft, fields::Fields};

/// The programs whose agent files can be imported.
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

    /// Returns the name, as a configuration spells it.
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

    /// Parses the name of a format. Surrounding whitespace and case are ignored.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let name = text.trim().to_ascii_lowercase();
        Self::ALL.iter().copied().find(|format| format.as_str() == name)
    }

    /// Returns the directories, relative to a project's directory or a home.
    #[must_use]
    pub const fn directories(self, scope: Scope) -> &'static [&'static str] {
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

    /// Returns whether agents may lie in subdirectories, whose names are then part of the agent's name.
    #[must_use]
    pub const fn has_folders(self) -> bool {
        match self {
            Self::OpenCode => true,
            Self::ClaudeCode | Self::Copilot | Self::Gemini | Self::Codex => false,
        }
    }

    /// Returns the suffix of the format's file names.
    #[must_use]
    pub const fn ending(self) -> &'static str {
        match self {
            Self::ClaudeCode | Self::OpenCode | Self::Gemini => ".md",
            Self::Copilot => ".agent.md",
            Self::Codex => ".toml",
        }
    }

    /// Returns the format that a file name suggests, for a file outside every known agent directory.
    #[must_use]
    pub fn by_ending(path: &str) -> Self {
        let telling = [Self::Codex, Self::Copilot];
        let found = telling.into_iter().find(|format| path.ends_with(format.ending()));
        found.unwrap_or(Self::ClaudeCode)
    }

    /// Returns the key that names the agent, or `None` if the file's stem is the name.
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

/// Reads a foreign agent and returns its name and content. A malformed agent keeps the name that it declares, or else
/// its file's name.
///
/// # Errors
///
/// If the agent is disabled by its author, or only its own program can run it. Such a file claims no name.
pub fn read(format: ForeignFormat, stem: &str, text: &str) -> Result<(AgentType, Parsed), Finding> {
    let fields = match Fields::read(format, text) {
        Ok(fields) => fields,
        Err(located) => return Ok(malformed(salvage(format, stem, text), located)),
    };
    if let Some(finding) = unsupported(&fields) {
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

/// Derives the name of a file that cannot be parsed.
fn salvage(format: ForeignFormat, stem: &str, text: &str) -> AgentType {
    let written = format.name_key().and_then(|key| match format {
        ForeignFormat::Codex => toml_name(key, text),
        ForeignFormat::ClaudeCode | ForeignFormat::OpenCode | ForeignFormat::Copilot | ForeignFormat::Gemini => {
            agents::written_name(&[key], text)
        }
    });
    written.unwrap_or_else(|| AgentType::salvage(stem))
}

/// Returns the name under a key in a text that may be TOML. Only lines before the first table and before any multi-line
/// string are considered.
fn toml_name(key: &str, text: &str) -> Option<AgentType> {
    let is_plain = |line: &&str| !line.starts_with('[') && !line.contains("\"\"\"") && !line.contains("'''");
    let mut entries = text
        .lines()
        .take_while(is_plain)
        .filter_map(|line| line.split_once('='));
    let (_, value) = entries.find(|(written, _)| written.trim() == key)?;
    agents::name_in(value)
}

/// Returns the finding about an agent that is disabled or that only its own program can run.
fn unsupported(fields: &Fields) -> Option<Finding> {
    let is = |key: &str, value: &str| fields.get(key).is_some_and(|field| field.value == *value);
    if fields.get("disable").is_some_and(|field| field.value == true) {
        return Some(Finding::warning(
            FindingKind::UnusedAgent,
            fields.line("disable"),
            "not used: the agent is disabled",
        ));
    }
    is("kind", "remote").then(|| {
        Finding::warning(
            FindingKind::UnusedAgent,
            fields.line("kind"),
            "not used: a remote agent, which only its own program can reach",
        )
    })
}

fn name(format: ForeignFormat, stem: &str, fields: &Fields) -> Result<AgentType, Located> {
    let (written, line) = match format.name_key().and_then(|key| fields.get(key)) {
        Some(field) => (field.text()?, field.line),
        // A Codex agent without a name key has the name of its file.
        None if matches!(format, ForeignFormat::ClaudeCode | ForeignFormat::Gemini) => {
            return Err(Malformed::MissingField("name").into());
        }
        None => (stem, None),
    };
    AgentType::parse(written).map_err(|_| {
        Malformed::Invalid {
            what: "name",
            why: format!("\"{written}\" is not an agent_type; use at most {MAX_BYTES} letters, digits, - and _"),
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
    let mut draft = ImportDraft::new(format, fields.body.clone());
    for field in &fields.entries {
        draft.map(field, findings)?;
    }
    Ok(draft.finish(name)?)
}

#[cfg(test)]
mod tests;
