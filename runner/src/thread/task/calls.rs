//! Tool calls of the running turn: those of the supervisor's tools, and those that work in the thread's directory.

use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tool_policy::{Effect, NativeTools};
use troupe_proto::reason::Reason;

use super::ThreadTask;
use crate::{
    agent::AskedTool,
    redact,
    thread::{Voice, gate},
    tool_line::{ToolCall, WorkspaceTool},
    tools::{ToolAnswer, ToolFailure, Toolbox},
    workspace::{Sight, Workspace},
    worktree::Worktree,
};

/// How many tool calls of one thread run at once, with the questions of its program for leave.
const MAX_CALLS: usize = 32;

/// What executes the calls of a thread.
#[derive(Clone, Debug)]
pub(super) struct Hands {
    pub(super) toolbox: Toolbox,
    pub(super) workspace: Arc<Workspace>,
    pub(super) voice: Voice,
    /// Where it works in one of its own.
    pub(super) worktree: Option<Arc<Worktree>>,
    /// The program's credentials, which are redacted in every displayed call.
    pub(super) secrets: Arc<[String]>,
}

impl Hands {
    async fn execute(self, call: ToolCall) -> Answered {
        let id = call.id.clone();
        let mut before = Vec::new();
        let answer = match WorkspaceTool::named(&call.name) {
            Some(tool) => self.work(tool, call, &mut before).await,
            None => self.toolbox.call(call).await,
        };
        Answered::Call { id, answer, before }
    }

    /// What would be written, as it is in the repository: that is what policies speak of.
    fn as_judged(&self, written: Vec<String>) -> Vec<String> {
        match &self.worktree {
            Some(worktree) => written.iter().map(|path| worktree.in_repository(path)).collect(),
            None => written,
        }
    }

    /// Waits for leave for a tool of the program's own. Of what is too large to be asked about no path is followed: that
    /// is work on the disk for each that the program names.
    async fn leave(&self, kind: &str, tool: &str, arguments: &Value, written: &[String]) -> Result<(), ToolFailure> {
        gate::check(tool, written)?;
        let followed = self.workspace.followed(written.to_vec()).await;
        self.voice
            .ask(kind, tool, arguments, self.as_judged(followed), &self.secrets)
            .await
    }

    /// Has the supervisor record a call of a tool that the program did not offer. Returns what to tell the model: why it
    /// may not use a tool of the supervisor's. Of its own tools the program says that itself.
    async fn refuse(&self, kind: &str, tool: &str, arguments: &Value) -> Option<String> {
        let refused = self.voice.refuse(kind, tool, arguments, &self.secrets).await;
        let why = refused.err().filter(|_| Effect::of(tool) == Effect::Coordinates)?;
        Some(format!("The call of `{tool}` was refused: {}", why.text()))
    }

    async fn work(self, tool: WorkspaceTool, call: ToolCall, before: &mut Vec<Sight>) -> ToolAnswer {
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
                &self.secrets,
            )
            .await?;
        *before = self.workspace.look_at(prepared.written()).await;
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
        /// The files that it wrote, as they were before.
        before: Vec<Sight>,
    },
    /// A call of a tool that the program did not offer is recorded; what to tell the model of it.
    Unoffered(Option<String>),
    /// The supervisor decided on a tool of the program's own.
    Ask {
        id: String,
        verdict: Result<(), ToolFailure>,
        /// The files that it writes, as they were before.
        before: Vec<Sight>,
    },
}

/// The calls that keep their order: each waits for the one before it, whatever became of that.
#[derive(Debug, Default)]
pub(super) struct CallQueue {
    last: Option<CancellationToken>,
}

impl CallQueue {
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
        if let Some(refusal) = self.refusal() {
            self.answer(&call.id, &Err(refusal));
            return;
        }
        let used = redact::tool_use(&call.name, "");
        self.meter.show(|shown| shown.last_tool = Some(used));
        let hands = self.hands.clone();
        if call.keeps_order() {
            let (before, done) = self.queue.take_place();
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
        if let Some(refusal) = self.refusal() {
            self.answered(Answered::Ask {
                id,
                verdict: Err(refusal),
                before: Vec::new(),
            });
            return;
        }
        let hands = self.hands.clone();
        let kind = self.role.kind.describe().kind;
        self.calls.spawn(async move {
            let verdict = hands.leave(&kind, &tool, &arguments, &written).await;
            let before = match &verdict {
                Ok(()) => hands.workspace.look_at(written).await,
                Err(_) => Vec::new(),
            };
            Answered::Ask { id, verdict, before }
        });
    }

    /// Reports a call of a tool that the program did not offer, so that the supervisor records the denial.
    pub(super) fn refuse_unoffered(&mut self, tool: String, arguments: Value) {
        // The program has rejected the call already; only the record is omitted.
        if self.refusal().is_some() {
            return;
        }
        let hands = self.hands.clone();
        let kind = self.role.kind.describe().kind;
        self.calls
            .spawn(async move { Answered::Unoffered(hands.refuse(&kind, &tool, &arguments).await) });
    }

    /// Why no tool may run now, whatever it is; `None`: one more may.
    fn refusal(&self) -> Option<ToolFailure> {
        if self.turn.is_none() {
            return Some(ToolFailure::new(Reason::IllegalTransition, "no turn is running"));
        }
        (self.calls.len() >= MAX_CALLS).then(|| {
            let text = format!("too many tool calls at once (max {MAX_CALLS})");
            ToolFailure::new(Reason::LimitExceeded, text)
        })
    }

    pub(super) fn answered(&mut self, answered: Answered) {
        match answered {
            Answered::Call { id, answer, before } => {
                if let Some(turn) = &mut self.turn {
                    turn.changes.remember(before);
                }
                self.answer(&id, &answer);
            }
            Answered::Unoffered(text) => {
                if let (Some(text), Some(agent)) = (text, &mut self.agent) {
                    let _ = agent.explain(&text);
                }
            }
            Answered::Ask { id, verdict, before } => {
                if let Some(turn) = &mut self.turn {
                    turn.changes.remember(before);
                }
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
