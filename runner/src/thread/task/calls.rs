//! Tool calls of the running turn: those of the supervisor's tools, and those that work in the thread's directory.

use std::sync::Arc;

use sha2::Digest as _;
use tokio_util::sync::CancellationToken;
use tool_policy::NativeTools;
use troupe_proto::{reason::Reason, supervisor::v1::ToolUse};

use super::ThreadTask;
use crate::{
    agent::AskedTool,
    redact,
    text::one_line,
    thread::Voice,
    tool_line::{ToolCall, WorkspaceTool},
    tools::{ToolAnswer, ToolFailure, Toolbox},
    workspace::Workspace,
    worktree::Worktree,
};

/// How many tool calls of one thread run at once.
const MAX_CALLS: usize = 32;
/// How much of the name of a called tool is shown, in characters.
const MAX_TOOL_NAME_CHARS: usize = 128;

/// What executes the calls of a thread.
#[derive(Clone, Debug)]
pub(super) struct Hands {
    pub(super) toolbox: Toolbox,
    pub(super) workspace: Arc<Workspace>,
    pub(super) voice: Voice,
    /// Where it works in one of its own.
    pub(super) worktree: Option<Arc<Worktree>>,
}

impl Hands {
    async fn execute(self, call: ToolCall) -> Answered {
        let id = call.id.clone();
        let mut change = None;
        let answer = match WorkspaceTool::named(&call.name) {
            Some(tool) => self.work(tool, call, &mut change).await,
            None => self.toolbox.call(call).await,
        };
        Answered::Call {
            id,
            change: change.filter(|_| answer.is_ok()),
            answer,
        }
    }

    /// What would be written, as it is in the repository: that is what policies speak of.
    fn as_judged(&self, written: Vec<String>) -> Vec<String> {
        match &self.worktree {
            Some(worktree) => written.iter().map(|path| worktree.in_repository(path)).collect(),
            None => written,
        }
    }

    async fn work(self, tool: WorkspaceTool, call: ToolCall, change: &mut Option<[u8; 32]>) -> ToolAnswer {
        let call = tool
            .read(call.args)
            .map_err(|error| ToolFailure::bad_arguments(error.to_string()))?;
        let prepared = self.workspace.prepare(call).await?;
        self.voice
            .ask(
                NativeTools::PROCESS.kind(),
                prepared.tool(),
                &prepared.arguments(),
                self.as_judged(prepared.written()),
            )
            .await?;
        *change = prepared.change();
        prepared.perform().await
    }
}

/// What there is to answer.
#[derive(Debug)]
pub(super) enum Answered {
    /// A tool call was executed.
    Call {
        /// As the program knows the call.
        id: String,
        answer: ToolAnswer,
        /// What it changed in the thread's files.
        change: Option<[u8; 32]>,
    },
    /// The supervisor decided on a tool of the program's own.
    Ask {
        id: String,
        verdict: Result<(), ToolFailure>,
    },
}

/// The order of the calls that keep it: each waits for the one before it, whatever became of that.
#[derive(Debug, Default)]
pub(super) struct Order {
    last: Option<CancellationToken>,
}

impl Order {
    /// The end of the call before, and what marks the end of this one.
    fn take_place(&mut self) -> (Option<CancellationToken>, CancellationToken) {
        let done = CancellationToken::new();
        (self.last.replace(done.clone()), done)
    }
}

impl ThreadTask {
    pub(super) fn call(&mut self, mut call: ToolCall) {
        if let Some(warning) = call.warning {
            self.meter.output(warning);
        }
        if call.id.is_empty() {
            self.minted_ids += 1;
            call.id = format!("call-{}", self.minted_ids);
        }
        let refusal = if self.turn.is_none() {
            Some(ToolFailure::new(Reason::IllegalTransition, "no turn is running"))
        } else if self.calls.len() >= MAX_CALLS {
            let text = format!("too many tool calls at once (max {MAX_CALLS})");
            Some(ToolFailure::new(Reason::LimitExceeded, text))
        } else {
            None
        };
        if let Some(refusal) = refusal {
            self.answer(&call.id, &Err(refusal));
            return;
        }
        let used = ToolUse {
            name: one_line(&call.name, MAX_TOOL_NAME_CHARS),
            detail: String::new(),
        };
        self.meter.show(|shown| shown.last_tool = Some(used));
        let hands = self.hands.clone();
        if call.keeps_order() {
            let (before, done) = self.order.take_place();
            // Made here: it also fires if the call is dropped before it has begun.
            let done = done.drop_guard();
            self.calls.spawn(async move {
                let _done = done;
                if let Some(before) = before {
                    before.cancelled().await;
                }
                hands.execute(call).await
            });
        } else {
            self.calls.spawn(hands.execute(call));
        }
    }

    /// A program asks for leave to use a tool of its own.
    pub(super) fn ask(&mut self, asked: AskedTool) {
        let AskedTool {
            id,
            tool,
            arguments,
            written,
        } = asked;
        let voice = self.hands.voice.clone();
        let written = self.hands.as_judged(written);
        let kind = self.role.kind.describe().kind;
        self.calls.spawn(async move {
            let arguments = redact::arguments(&arguments);
            let verdict = voice.ask(&kind, &tool, &arguments, written).await;
            Answered::Ask { id, verdict }
        });
    }

    pub(super) fn answered(&mut self, answered: Answered) {
        match answered {
            Answered::Call { id, answer, change } => {
                if let (Some(turn), Some(change)) = (&mut self.turn, change) {
                    turn.changes.get_or_insert_default().update(change);
                }
                self.answer(&id, &answer);
            }
            Answered::Ask { id, verdict } => {
                if let Some(agent) = &mut self.agent {
                    let _ = agent.permit(&id, &verdict);
                }
            }
        }
    }

    fn answer(&mut self, id: &str, answer: &ToolAnswer) {
        if let Some(agent) = &mut self.agent {
            // A program that does not listen is found out at its next turn.
            let _ = agent.answer_tool(id, answer);
        }
    }
}
