//! `troupe prompts`: lists and shows the prompts that a thread was sent.

use std::time::SystemTime;

use clap::Subcommand;
use clap_complete::ArgValueCompleter;
use serde_json::json;
use troupe_proto::supervisor::v1::{GetPromptRequest, Prompt, PromptExtent};

use crate::{
    complete,
    context::Context,
    error::{Error, Result},
    ids, json, listing, names, sanitize, time,
    ui::{Cell, Table, style},
};

const AFTER_HELP: &str = "\
Examples:
  troupe prompts scout
  troupe prompts show scout 2
  troupe prompts show scout 3 --diff 2";

/// The arguments of `prompts`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, disable_help_subcommand = true)]
pub(crate) struct Args {
    /// The action.
    #[command(subcommand)]
    action: Option<Action>,
    /// Thread: an id, the beginning or the end of one, an alias, or @last
    #[arg(value_name = "THREAD", required = true)]
    thread: Option<String>,
}

/// An action on prompts.
#[derive(Debug, Subcommand)]
enum Action {
    /// Show the text of a prompt, or its difference from an earlier one
    #[command(after_help = "Example: troupe prompts show scout 3 --diff 2")]
    Show(ShowArgs),
}

/// The arguments of `prompts show`.
#[derive(Debug, clap::Args)]
struct ShowArgs {
    /// Thread: an id, the beginning or the end of one, an alias, or @last
    #[arg(value_name = "THREAD", add = ArgValueCompleter::new(complete::threads))]
    thread: String,
    /// Turn [default: the last one]
    #[arg(value_name = "TURN")]
    turn: Option<u32>,
    /// Show the difference from this turn's prompt, as a unified diff [default: the turn before]
    #[arg(long, value_name = "TURN", num_args = 0..=1, default_missing_value = "0", require_equals = false)]
    diff: Option<u32>,
}

/// Runs the action. Lists the prompts by default.
pub(crate) async fn run(args: Args, context: &Context) -> Result<()> {
    match args.action {
        Some(Action::Show(args)) => show(args, context).await,
        None => list(&args.thread.unwrap_or_default(), context).await,
    }
}

async fn list(thread: &str, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let thread = ids::thread(&mut supervisor, thread, None).await?;
    let prompts = listing::prompts(&mut supervisor, &thread).await?;
    context.ui.table(
        || json!({ "prompts": json::list(&prompts) }),
        || table(&prompts, SystemTime::now()),
        "no prompts are stored for this thread",
    )
}

fn table(prompts: &[Prompt], now: SystemTime) -> Table<5> {
    let mut table = Table::new(["TURN", "AGE", "SENT", "BLOCKS", "SHA256"]);
    for prompt in prompts {
        let blocks = prompt
            .blocks
            .iter()
            .map(|block| names::block_kind(block.kind()).to_ascii_lowercase());
        table.row([
            Cell::plain(prompt.turn.to_string()),
            Cell::plain(time::age(prompt.time.as_ref(), now)),
            Cell::plain(match prompt.extent() {
                PromptExtent::Full => "full",
                PromptExtent::Delta => "delta",
                PromptExtent::Unspecified => "",
            }),
            Cell::plain(blocks.collect::<Vec<_>>().join(" ")),
            Cell::new(style::DIM, &prompt.sha256),
        ]);
    }
    table
}

async fn show(args: ShowArgs, context: &Context) -> Result<()> {
    let mut supervisor = context.supervisor().await?;
    let thread_id = ids::thread(&mut supervisor, &args.thread, None).await?;
    let turn = match args.turn {
        Some(turn) => turn,
        None => {
            let prompts = listing::prompts(&mut supervisor, &thread_id).await?;
            let last = prompts
                .last()
                .ok_or_else(|| Error::not_found("no prompts are stored for this thread"))?;
            last.turn
        }
    };
    let diff_with_turn = match args.diff {
        Some(0) if turn < 2 => {
            return Err(Error::usage("the first turn has no earlier prompt").hint("leave out --diff"));
        }
        Some(0) => turn - 1,
        other => other.unwrap_or_default(),
    };
    let request = GetPromptRequest {
        thread_id,
        turn,
        diff_with_turn,
        ..GetPromptRequest::default()
    };
    let answer = supervisor.get_prompt(request).await?.into_inner();
    let prompt = answer.prompt.clone().unwrap_or_default();
    if prompt.texts_left_out {
        context.ui.note("the session stores digests of prompts only");
    }
    context.ui.page(
        || json::message(&answer),
        || match args.diff {
            Some(_) if answer.diff.is_empty() => "no difference".to_owned(),
            Some(_) => sanitize::block(&answer.diff),
            None => blocks(&prompt),
        },
    )
}

/// Formats the blocks of a prompt, each below a heading.
pub(super) fn blocks(prompt: &Prompt) -> String {
    let blocks = prompt.blocks.iter().map(|block| {
        let heading = format!("── {} ", names::block_kind(block.kind()).to_ascii_lowercase());
        let heading = style::paint(style::HEADING, heading);
        let text = match block.text.as_str() {
            "" => block.sha256.clone(),
            text => sanitize::block(text),
        };
        format!("{heading}\n{text}")
    });
    blocks.collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use troupe_proto::common::v1::{BlockKind, PromptBlock};

    use super::*;
    use crate::ui;

    #[test]
    fn blocks_have_headings_and_safe_text() {
        let prompt = Prompt {
            blocks: vec![PromptBlock {
                kind: BlockKind::Task.into(),
                text: "Find\u{1b}[2J it.".to_owned(),
                ..PromptBlock::default()
            }],
            ..Prompt::default()
        };
        assert_eq!(ui::plain(&blocks(&prompt)), "── task \nFind[2J it.");
    }
}
