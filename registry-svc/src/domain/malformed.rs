//! The two kinds of defect of a template, with the texts that clients see.

use tool_policy::PolicyError;

use crate::domain::name::PersonaName;

/// Why a file is no template. It is neither listed nor resolved: falling back to something looser would open it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The file was not read: too large, not text, not a file, behind a link that leaves its scope.
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
    /// A key that restricts in another dialect, or at another place, stands where it has no effect.
    #[error("key \"{key}\" would restrict nothing here; use \"{meant}\" at the top level of the frontmatter")]
    MisplacedRestriction {
        /// The key as written.
        key: String,
        /// The key that restricts here.
        meant: String,
    },
    /// An unknown key that is nearly one that restricts.
    #[error("unknown key \"{key}\"; did you mean \"{meant}\"? It restricts, so it is not ignored")]
    MisspeltRestriction {
        /// The key as written.
        key: String,
        /// The key it resembles.
        meant: String,
    },
    /// A list that restricts has entries, all of them blank.
    #[error("{key} has only blank entries; remove it or name at least one")]
    BlankList {
        /// The list's key.
        key: &'static str,
    },
    /// An entry of spawn_list is no agent type.
    #[error("spawn_list: \"{0}\" is not an agent_type")]
    BadSpawnEntry(String),
    /// A pattern of a tool list cannot be compiled.
    #[error("{0}")]
    BadPattern(#[from] PolicyError),
    /// There are persona blocks and the frontmatter declares no persona.
    #[error("found agent_name blocks but frontmatter agent_names is missing")]
    BlocksWithoutPersonas,
    /// A block whose persona is not declared.
    #[error("invalid agent_names: missing agent_names entry for \"{0}\"")]
    UndeclaredBlock(PersonaName),
    /// A declared persona without a block.
    #[error("invalid agent_names: missing agent_name block for \"{0}\"")]
    MissingBlock(PersonaName),
    /// A persona that is declared twice.
    #[error("invalid agent_names: repeated agent_names entry for \"{0}\"")]
    RepeatedPersona(PersonaName),
    /// A block with nothing in it.
    #[error("invalid agent_names: empty agent_name block for \"{0}\"")]
    EmptyBlock(PersonaName),
    /// A second block for one persona.
    #[error("invalid agent_names: repeated agent_name block for \"{0}\"")]
    RepeatedBlock(PersonaName),
}

/// What a listing needs and a usable template lacks. It can still be spawned.
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

/// Either kind, as an error carries it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// Fails listing and resolving.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Fails listing only.
    #[error(transparent)]
    Incomplete(#[from] Incomplete),
}

/// What makes a file malformed, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The line, from 1.
    pub line: Option<usize>,
    /// What is wrong.
    pub why: Malformed,
}

impl Malformed {
    /// At that line, if there is one to name.
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
