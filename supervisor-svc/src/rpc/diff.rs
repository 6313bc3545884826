//! Block-by-block diff of two prompts.

use std::{collections::BTreeSet, time::Duration};

use similar::TextDiff;

use crate::domain::event::BlockKind;

/// Maximum time to search for the smallest diff of one block. After that, a larger diff is acceptable.
const DIFF_TIMEOUT: Duration = Duration::from_millis(200);

/// An effective prompt with its texts.
pub(super) struct Side {
    /// The turn of the prompt.
    pub turn: u32,
    pub blocks: Vec<(BlockKind, String)>,
}

impl Side {
    /// Returns the texts of the blocks of one kind, as an agent reads them.
    fn text(&self, kind: BlockKind) -> String {
        let of_kind = self.blocks.iter().filter(|(other, _)| *other == kind);
        let texts: Vec<&str> = of_kind.map(|(_, text)| text.as_str()).collect();
        texts.join("\n\n")
    }

    fn header(&self, kind: BlockKind) -> String {
        let kind = match kind {
            BlockKind::System => "system",
            BlockKind::Role => "role",
            BlockKind::Mode => "mode",
            BlockKind::Task => "task",
            BlockKind::Override => "override",
        };
        format!("turn {} {kind}", self.turn)
    }
}

/// Returns a unified diff of each kind of block that differs, in the order in which blocks are sent.
pub(super) fn unified(earlier: &Side, later: &Side) -> String {
    let blocks = earlier.blocks.iter().chain(&later.blocks);
    let kinds: BTreeSet<BlockKind> = blocks.map(|(kind, _)| *kind).collect();
    let mut whole = String::new();
    for kind in kinds {
        let (old, new) = (earlier.text(kind), later.text(kind));
        let diff = TextDiff::configure()
            .timeout(DIFF_TIMEOUT)
            .diff_lines(old.as_str(), new.as_str());
        let shown = diff
            .unified_diff()
            .header(&earlier.header(kind), &later.header(kind))
            .to_string();
        whole.push_str(&shown);
    }
    whole
}
