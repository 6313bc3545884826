//! The prompt blocks that the registry provides: system (with the footer), role, mode.

use std::sync::Arc;

use crate::domain::digest::Digest;

/// The purpose of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The repository is read-only except docs/.
    Planning,
    /// Code may be changed.
    Implementation,
}

/// The kind of a prompt block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// The instructions shared by all agents.
    System,
    /// The agent's role.
    Role,
    /// The rules of the mode.
    Mode,
}

impl BlockKind {
    /// Returns the name, for digests.
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
    /// The block's kind.
    pub kind: BlockKind,
    /// Its text, never blank.
    pub text: String,
    /// SHA-256 of the text.
    pub sha256: Digest,
}

impl Block {
    /// Creates a block. Returns `None` if the text is blank.
    fn of(kind: BlockKind, text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self {
            kind,
            text: text.to_owned(),
            sha256: Digest::of(text.as_bytes()),
        })
    }
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

impl SharedTexts {
    fn mode(&self, mode: Mode) -> &str {
        match mode {
            Mode::Planning => &self.planning,
            Mode::Implementation => &self.implementation,
        }
    }
}

/// Builds the blocks of a prompt. Blank blocks are omitted.
#[must_use]
pub fn blocks(texts: &SharedTexts, footer: &str, role: &str, mode: Mode) -> Vec<Block> {
    [
        (BlockKind::System, with_footer(&texts.system, footer).as_str()),
        (BlockKind::Role, role),
        (BlockKind::Mode, texts.mode(mode)),
    ]
    .into_iter()
    .filter_map(|(kind, text)| Block::of(kind, text))
    .collect()
}

/// Returns the block of each mode that has a text, so that a session can change its mode without another resolution.
#[must_use]
pub fn mode_blocks(texts: &SharedTexts) -> Vec<(Mode, Block)> {
    [Mode::Planning, Mode::Implementation]
        .into_iter()
        .filter_map(|mode| Some((mode, Block::of(BlockKind::Mode, texts.mode(mode))?)))
        .collect()
}

/// Appends the footer to the system text, unless the text already ends with the footer. A blank footer is ignored.
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
    fn footer_ends_system_block_exactly_once() {
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
    fn blocks_are_ordered_and_blank_ones_omitted() {
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
    fn each_mode_has_its_own_block() {
        let both = |texts: &SharedTexts| -> Vec<_> {
            mode_blocks(texts)
                .into_iter()
                .map(|(mode, block)| (mode, block.kind, block.text))
                .collect()
        };
        let implementation = (Mode::Implementation, BlockKind::Mode, "build".to_owned());
        assert_eq!(
            both(&texts("sys")),
            [
                (Mode::Planning, BlockKind::Mode, "plan".to_owned()),
                implementation.clone()
            ]
        );
        let without_one = SharedTexts {
            planning: " ".into(),
            ..texts("sys")
        };
        assert_eq!(both(&without_one), [implementation]);
    }

    #[test]
    fn block_has_digest_of_its_text() {
        let block = &blocks(&texts("sys"), "", "", Mode::Planning)[0];
        assert_eq!(block.sha256, Digest::of(b"sys"));
    }
}
