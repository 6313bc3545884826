//! The prompt that a program receives. The supervisor decides whether a turn contains the complete prompt or only
//! changes. Only the runner knows whether a program was restarted since. In that case it completes the prompt from
//! earlier turns.

use troupe_proto::{
    common::v1::{BlockKind, PromptBlock, ResolvedSpawn},
    supervisor::v1::{Input, PromptExtent, Turn},
};

/// The introduction to an assignment during which an earlier attempt ended.
pub(crate) const REPEATED: &str = "An earlier attempt at this was interrupted. Look at what is done already, and continue from there \
                        instead of doing it again.";

/// A turn in the form that the program receives.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PreparedTurn {
    pub(crate) number: u32,
    pub(crate) extent: PromptExtent,
    pub(crate) blocks: Vec<PromptBlock>,
    pub(crate) inputs: Vec<Input>,
    /// Whether the runner completed a partial prompt. The runner reports this to the supervisor.
    pub(crate) completed: bool,
    /// Whether an earlier attempt ended during this turn.
    pub(crate) repeats: bool,
}

/// The blocks of the last prompt. The override is not stored, because it is valid for one turn only.
#[derive(Debug, Default)]
pub(crate) struct PromptMemory {
    blocks: Vec<PromptBlock>,
}

impl PromptMemory {
    /// Stores the blocks of a dispatched turn.
    pub(crate) fn remember(&mut self, turn: &Turn) {
        let dispatched: Vec<_> = lasting(&turn.blocks).cloned().collect();
        match turn.extent() {
            PromptExtent::Delta => {
                self.blocks
                    .retain(|old| dispatched.iter().all(|new| new.kind != old.kind));
                self.blocks.extend(dispatched);
                // The sort is stable: blocks of one kind keep their order of arrival.
                self.blocks.sort_by_key(|block| block.kind);
            }
            PromptExtent::Full | PromptExtent::Unspecified => self.blocks = dispatched,
        }
    }

    /// Returns the turn for a program. A program that has not received a complete prompt receives one. The turn must
    /// have been remembered before.
    pub(crate) fn give(&self, turn: &Turn, has_prompt: bool) -> PreparedTurn {
        let completed = !has_prompt && turn.extent() == PromptExtent::Delta;
        let blocks = if completed {
            let overrides = turn.blocks.iter().filter(|block| block.kind() == BlockKind::Override);
            self.blocks.iter().chain(overrides).cloned().collect()
        } else {
            turn.blocks.clone()
        };
        PreparedTurn {
            number: turn.turn,
            extent: if completed { PromptExtent::Full } else { turn.extent() },
            blocks,
            inputs: turn.inputs.clone(),
            completed,
            repeats: turn.repeats,
        }
    }
}

fn lasting(blocks: &[PromptBlock]) -> impl Iterator<Item = &PromptBlock> {
    blocks.iter().filter(|block| block.kind() != BlockKind::Override)
}

/// Returns whether a block belongs to a program's fixed instructions instead of to every turn.
pub(crate) fn is_instruction(block: &PromptBlock) -> bool {
    matches!(block.kind(), BlockKind::System | BlockKind::Role)
}

/// Returns the fixed instructions of an agent, from its first turn or else from its resolved spawn.
pub(crate) fn instructions(first: Option<&Turn>, resolved: &ResolvedSpawn) -> String {
    let dispatched = first.filter(|turn| turn.extent() != PromptExtent::Delta);
    let blocks = dispatched.map_or(&resolved.blocks, |turn| &turn.blocks);
    join(blocks.iter().filter(|block| is_instruction(block)))
}

/// Returns the part of a turn for an agent that already has its instructions.
pub(crate) fn assignment(turn: &PreparedTurn) -> String {
    let text = join(turn.blocks.iter().filter(|block| !is_instruction(block)));
    if turn.repeats {
        format!("{REPEATED}\n\n{text}")
    } else {
        text
    }
}

/// Returns the blocks that are not blank, separated by blank lines.
pub(crate) fn join<'a>(blocks: impl IntoIterator<Item = &'a PromptBlock>) -> String {
    let texts: Vec<_> = blocks
        .into_iter()
        .map(|block| block.text.as_str())
        .filter(|text| !text.trim().is_empty())
        .collect();
    texts.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(extent: PromptExtent, blocks: &[(BlockKind, &str)]) -> Turn {
        Turn {
            turn: 1,
            blocks: blocks
                .iter()
                .map(|&(kind, text)| PromptBlock {
                    kind: kind.into(),
                    text: text.to_owned(),
                    sha256: String::new(),
                })
                .collect(),
            extent: extent.into(),
            ..Turn::default()
        }
    }

    #[test]
    fn program_with_prompt_receives_dispatched_blocks() {
        let mut memory = PromptMemory::default();
        memory.remember(&turn(
            PromptExtent::Full,
            &[(BlockKind::System, "s"), (BlockKind::Task, "t1")],
        ));
        let delta = turn(PromptExtent::Delta, &[(BlockKind::Task, "t2")]);
        memory.remember(&delta);
        let prepared = memory.give(&delta, true);
        assert_eq!((prepared.extent, prepared.completed), (PromptExtent::Delta, false));
        assert_eq!(join(&prepared.blocks), "t2");
    }

    #[test]
    fn new_program_receives_current_full_prompt() {
        let mut memory = PromptMemory::default();
        memory.remember(&turn(
            PromptExtent::Full,
            &[
                (BlockKind::System, "s"),
                (BlockKind::Role, " "),
                (BlockKind::Mode, "m1"),
                (BlockKind::Task, "t1"),
                (BlockKind::Override, "once"),
            ],
        ));
        let delta = turn(
            PromptExtent::Delta,
            &[
                (BlockKind::Mode, "m2"),
                (BlockKind::Task, "t2"),
                (BlockKind::Override, "now"),
            ],
        );
        memory.remember(&delta);
        let prepared = memory.give(&delta, false);
        assert_eq!((prepared.extent, prepared.completed), (PromptExtent::Full, true));
        assert_eq!(join(&prepared.blocks), "s\n\nm2\n\nt2\n\nnow");
    }
}
