//! The two kinds of defect of a template, with the texts that clients see.

use tool_policy::PolicyError;

use crate::domain::{
    diagnostic::Replacement,
    finding_kind::FindingKind,
    name::{MAX_BYTES, PersonaName},
};

/// The reason why a file is not a valid template. The template is neither listed nor resolved, because a fallback could
/// be less restrictive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The file was not read. It is too large, is not text, is not a regular file, lies behind a link that leaves its
    /// scope, or exceeds the work budget of its directory.
    #[error("{0}")]
    Refused(String),
    /// The first line opens frontmatter and no line closes it.
    #[error("unterminated frontmatter: no closing \"---\" line")]
    UnterminatedFrontmatter,
    /// The frontmatter is not YAML, or has values of the wrong types.
    #[error("invalid YAML: {0}")]
    InvalidYaml(String),
    /// The preamble of a graph template cannot be read.
    #[error("invalid [template] preamble: {0}")]
    InvalidPreamble(String),
    /// A key that restricts agents only in another dialect, or only at the top level of the frontmatter.
    #[error("key \"{key}\" would restrict nothing here; use \"{meant}\" at the top level of the frontmatter")]
    MisplacedRestriction {
        /// The key as written.
        key: String,
        /// The key with this effect at the top level of this dialect's frontmatter.
        meant: String,
    },
    /// A key that restricts agents in another dialect and has no equivalent in this one.
    #[error("key \"{key}\" would restrict nothing here; this dialect has no equivalent key")]
    UselessRestriction {
        /// The key as written.
        key: String,
    },
    /// The file has more keys than the limit.
    #[error("more than {max} keys")]
    TooManyKeys {
        /// The bound.
        max: usize,
    },
    /// The file has no frontmatter. Its dialect needs frontmatter that declares the name.
    #[error("missing YAML frontmatter delimited by ---")]
    NoFrontmatter,
    /// A profile, or a foreign agent, lacks a required key.
    #[error("missing field `{0}`")]
    MissingField(&'static str),
    /// A value, or a part of the file, breaks a rule.
    #[error("invalid {what}: {why}")]
    Invalid {
        /// The key, or the part.
        what: &'static str,
        /// The rule, with the value.
        why: String,
    },
    /// A subagent lacks a required part.
    #[error("missing required field: {0}")]
    MissingRequired(&'static str),
    /// A subagent's name is not valid.
    #[error(
        "invalid agent name `{0}`: name must start with a lowercase letter, include only lowercase letters, digits, \
         hyphen, or underscore, and be 3-64 characters long"
    )]
    BadSubagentName(String),
    /// A duplicate entry in a subagent's list.
    #[error("duplicate {list} entry `{entry}`")]
    DuplicateEntry {
        /// The kind of entry: `tool`, `keyword`.
        list: &'static str,
        /// The entry.
        entry: String,
    },
    /// A subagent's list has a blank entry.
    #[error("{0} must be non-empty strings")]
    BlankEntry(&'static str),
    /// A text of a subagent's model_config is blank.
    #[error("model_config.{0} must be a non-empty string when set")]
    BlankModelConfig(&'static str),
    /// A subagent names two models.
    #[error("model `{model}` conflicts with model_config.model `{config}`")]
    ModelConflict {
        /// `model`.
        model: String,
        /// `model_config.model`.
        config: String,
    },
    /// A subagent key and a profile key in the same file.
    #[error("model_config belongs to a subagent and \"{0}\" to a profile; use the keys of one of them")]
    MixedDialects(String),
    /// A foreign agent is not TOML, or has values of the wrong types.
    #[error("invalid TOML: {0}")]
    InvalidToml(String),
    /// A value of a foreign agent has the wrong type.
    #[error("{key} is not {expected}")]
    WrongType {
        /// The key.
        key: String,
        /// The expected type.
        expected: &'static str,
    },
    /// An unknown key that resembles a key that restricts agents.
    #[error("unknown key \"{key}\"; did you mean \"{meant}\"? A misspelt restriction is an error")]
    MisspeltRestriction {
        /// The key as written.
        key: String,
        /// The key of this dialect that the author probably meant.
        meant: String,
    },
    /// All entries of a list that restricts are blank.
    #[error("{key} has only blank entries; remove the key or add an entry")]
    BlankList {
        /// The list's key.
        key: &'static str,
    },
    /// An entry of spawn_list is not an agent type.
    #[error("spawn_list: \"{0}\" is not an agent_type")]
    BadSpawnEntry(String),
    /// A pattern of a tool list cannot be compiled.
    #[error("{0}")]
    BadPattern(#[from] PolicyError),
    /// There are persona blocks and the frontmatter declares no persona.
    #[error("found agent_name blocks but frontmatter agent_names is missing")]
    BlocksWithoutPersonas,
    /// A persona whose name is too long for a request.
    #[error(
        "agent_name \"{}...\" has {} bytes; at most {} are allowed",
        .0.beginning(),
        .0.as_str().len(),
        MAX_BYTES
    )]
    LongPersona(PersonaName),
    /// A block of a persona that is not declared.
    #[error("invalid agent_names: missing agent_names entry for \"{0}\"")]
    UndeclaredBlock(PersonaName),
    /// A declared persona without a block.
    #[error("invalid agent_names: missing agent_name block for \"{0}\"")]
    MissingBlock(PersonaName),
    /// A persona that is declared twice.
    #[error("invalid agent_names: repeated agent_names entry for \"{0}\"")]
    RepeatedPersona(PersonaName),
    /// An empty block.
    #[error("invalid agent_names: empty agent_name block for \"{0}\"")]
    EmptyBlock(PersonaName),
    /// A second block for one persona.
    #[error("invalid agent_names: repeated agent_name block for \"{0}\"")]
    RepeatedBlock(PersonaName),
}

/// A requirement for listing that a usable template does not meet. The template can still be spawned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Incomplete {
    /// No description of the role.
    #[error("missing required frontmatter description")]
    Description,
    /// No text before the first persona block.
    #[error("missing required default prompt block")]
    DefaultPrompt,
    /// No description of a persona.
    #[error("missing description for agent_name \"{0}\"")]
    PersonaDescription(PersonaName),
}

impl Incomplete {
    /// Returns the kind of the finding about the requirement.
    #[must_use]
    pub const fn kind(&self) -> FindingKind {
        match self {
            Self::Description | Self::PersonaDescription(_) => FindingKind::MissingDescription,
            Self::DefaultPrompt => FindingKind::MissingPrompt,
        }
    }
}

/// A defect of either kind, as part of an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// The defect fails listing and resolving.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The defect fails listing only.
    #[error(transparent)]
    Incomplete(#[from] Incomplete),
}

/// A defect that makes a file malformed, and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The line, starting at 1.
    pub line: Option<usize>,
    /// The defect.
    pub why: Malformed,
}

impl Malformed {
    /// Returns a suggestion for the author, if the message itself does not contain one.
    #[must_use]
    pub fn suggestion(&self) -> Option<String> {
        let fixed = match self {
            Self::MisspeltRestriction { meant, .. } => return Some(format!("did you mean {meant}?")),
            Self::MisplacedRestriction { meant, .. } => return Some(format!("use {meant}")),
            Self::UnterminatedFrontmatter => "close the frontmatter with a line ---",
            Self::UselessRestriction { .. } => "write the agent as a role in .codex/.agents",
            Self::TooManyKeys { .. } => "remove unknown keys",
            Self::NoFrontmatter => {
                "start the file with frontmatter that has a name, or move the file if it is not an agent"
            }
            Self::InvalidPreamble(_) => "write key = value lines and end the preamble with an empty line",
            Self::MixedDialects(_) => {
                "remove model_config and use model, or remove the profile's keys and use name, tools and model_config"
            }
            Self::MissingField("agent_type" | "description" | "model" | "color") => {
                "a profile needs agent_type, description, model and color"
            }
            Self::MissingRequired("name") => "add a name, for example `name: reviewer`",
            Self::InvalidYaml(message) if message.contains("unknown anchor") => {
                "quote entries that start with *, which otherwise is a YAML alias"
            }
            Self::BlocksWithoutPersonas | Self::UndeclaredBlock(_) => "declare the persona in agent_names",
            Self::LongPersona(_) => "give the persona a short name",
            Self::MissingBlock(_) => "add a block that starts with <!-- agent_name: NAME -->",
            Self::Refused(_)
            | Self::InvalidYaml(_)
            | Self::BlankList { .. }
            | Self::BadSpawnEntry(_)
            | Self::BadPattern(_)
            | Self::MissingField(_)
            | Self::Invalid { .. }
            | Self::MissingRequired(_)
            | Self::BadSubagentName(_)
            | Self::DuplicateEntry { .. }
            | Self::BlankEntry(_)
            | Self::BlankModelConfig(_)
            | Self::ModelConflict { .. }
            | Self::InvalidToml(_)
            | Self::WrongType { .. }
            | Self::RepeatedPersona(_)
            | Self::EmptyBlock(_)
            | Self::RepeatedBlock(_) => return None,
        };
        Some(fixed.to_owned())
    }

    /// Returns the kind of the finding about the defect.
    #[must_use]
    pub const fn kind(&self) -> FindingKind {
        match self {
            Self::Refused(_) => FindingKind::Unreadable,
            Self::UnterminatedFrontmatter => FindingKind::UnterminatedFrontmatter,
            Self::InvalidYaml(_) => FindingKind::InvalidYaml,
            Self::InvalidPreamble(_) | Self::InvalidToml(_) => FindingKind::InvalidToml,
            Self::MisplacedRestriction { .. } | Self::UselessRestriction { .. } => FindingKind::MisplacedRestriction,
            Self::MisspeltRestriction { .. } => FindingKind::MisspeltRestriction,
            Self::TooManyKeys { .. } => FindingKind::TooManyKeys,
            Self::NoFrontmatter => FindingKind::MissingFrontmatter,
            Self::MissingField(_) | Self::MissingRequired(_) => FindingKind::MissingField,
            Self::Invalid { .. }
            | Self::BadSubagentName(_)
            | Self::BlankModelConfig(_)
            | Self::WrongType { .. }
            | Self::BadSpawnEntry(_)
            | Self::LongPersona(_) => FindingKind::InvalidValue,
            Self::DuplicateEntry { .. } => FindingKind::DuplicateEntry,
            Self::BlankEntry(_) | Self::BlankList { .. } => FindingKind::BlankEntry,
            Self::ModelConflict { .. } | Self::MixedDialects(_) => FindingKind::ConflictingKeys,
            Self::BadPattern(_) => FindingKind::InvalidPattern,
            Self::BlocksWithoutPersonas | Self::UndeclaredBlock(_) => FindingKind::UndeclaredPersona,
            Self::MissingBlock(_) => FindingKind::MissingPersonaBlock,
            Self::RepeatedPersona(_) | Self::RepeatedBlock(_) => FindingKind::RepeatedPersona,
            Self::EmptyBlock(_) => FindingKind::EmptyPersonaBlock,
        }
    }

    /// Returns the mechanical fix, if there is one.
    #[must_use]
    pub fn replacement(&self) -> Option<Replacement> {
        let (Self::MisspeltRestriction { key, meant } | Self::MisplacedRestriction { key, meant }) = self else {
            return None;
        };
        Some(Replacement {
            from: key.clone(),
            to: meant.clone(),
        })
    }

    /// Adds the line, if it is known.
    #[must_use]
    pub fn at(self, line: Option<usize>) -> Located {
        Located { line, why: self }
    }
}

impl From<Malformed> for Located {
    fn from(why: Malformed) -> Self {
        why.at(None)
    }
}
