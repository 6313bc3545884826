//! The blocks of a prompt that the registry answers for: system (with the footer), role, mode.

use std::sync::Arc;

use crate::domain::digest::Digest;

/// What the session is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The repository is read-only except docs/.
    Planning,
    /// Code may change.
    Implementation,
}

/// What a block is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// The contract of the system with every agent.
    System,
    /// Who the agent is.
    Role,
    /// What the mode allows.
    Mode,
}

impl BlockKind {
    /// The name, for digests.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Role => "role",
            Self::Mode => "mode",
        }
    }
}

/// One block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// What it is for.
    pub kind: BlockKind,
    /// Its text, never blank.
    pub text: String,
    /// SHA-256 of the text.
    pub sha256: Digest,
}

/// The texts that every prompt shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedTexts {
    /// The system block, without the footer.
    pub system: Arc<str>,
    /// The mode block of PLANNING.
    pub planning: Arc<str>,
    /// The mode block of IMPLEMENTATION.
    pub implementation: Arc<str>,
}

/// Builds the blocks of a prompt. Blank ones are left out.
#[must_use]
pub fn blocks(texts: &SharedTexts, footer: &str, role: &str, mode: Mode) -> Vec<Block> {
    let mode = match mode {
        Mode::Planning => &texts.planning,
        Mode::Implementation => &texts.implementation,
    };
    [
        (BlockKind::System, with_footer(&texts.system, footer)),
        (BlockKind::Role, role.trim().to_owned()),
        (BlockKind::Mode, mode.trim().to_owned()),
    ]
    .into_iter()
    .filter(|(_, text)| !text.is_empty())
    .map(|(kind, text)| Block {
        kind,
        sha256: Digest::of(text.as_bytes()),
        text,
    })
    .collect()
}

/// The system text with the footer last in it, once. A blank footer means none.
fn with_footer(system: &str, footer: &str) -> String {
    let (system, footer) = (system.trim(), footer.trim());
    if footer.is_empty() || system.ends_with(footer) {
        return system.to_owned();
    }
    if system.is_empty() {
        return footer.to_owned();
    }
    format!("{system}\n\n{footer}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(system: &str) -> SharedTexts {
        SharedTexts {
            system: system.into(),
            planning: "plan".into(),
            implementation: "build\n".into(),
        }
    }

    #[test]
    fn the_footer_is_last_in_the_system_block_once() {
        for (system, footer, text) in [
            ("sys\n", "foot\n", "sys\n\nfoot"),
            ("sys\n\nfoot\n", " foot ", "sys\n\nfoot"),
            ("sys", " \n", "sys"),
            ("", "foot", "foot"),
        ] {
            assert_eq!(
                blocks(&texts(system), footer, "role", Mode::Planning)[0].text,
                text,
                "{system:?} {footer:?}"
            );
        }
    }

    #[test]
    fn blocks_come_in_order_and_blank_ones_not_at_all() {
        let kinds = |role| -> Vec<_> {
            blocks(&texts("sys"), "", role, Mode::Implementation)
                .into_iter()
                .map(|block| (block.kind, block.text))
                .collect()
        };
        let system = (BlockKind::System, "sys".to_owned());
        let mode = (BlockKind::Mode, "build".to_owned());
        assert_eq!(
            kinds(" role\n"),
            [system.clone(), (BlockKind::Role, "role".to_owned()), mode.clone()]
        );
        assert_eq!(kinds("  "), [system, mode]);
    }

    #[test]
    fn a_block_carries_the_digest_of_its_text() {
        let block = &blocks(&texts("sys"), "", "", Mode::Planning)[0];
        assert_eq!(block.sha256, Digest::of(b"sys"));
    }
}
