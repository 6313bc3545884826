//! Commands, and the life cycle of a turn: it begins, accepts input, is interrupted and ends.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base16ct::lower;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use troupe_proto::supervisor::v1::{
    ArtifactReport, ClosePolicy, InputDeliveredReport, PromptReport, RunningInput, TranscriptKind, Turn,
    TurnEndedReport, TurnOutcome, TurnStartedReport, runner_report::Kind,
};

use super::{EndReason, Escalation, EscalationStep, RunningTurn, ThreadTask, TurnSpan, Unstarted};
use crate::{
    agent::{FileKind, InputError, Order, ProducedFile, TurnEnding},
    input,
    text::{clean, cut},
    thread::{Command, RUNNER_STOPPED, Shutdown, ThreadReporter},
    workspace::{Changes, Difference, MAX_DIFF_BYTES, Snapshot},
};

/// Maximum size of a piece of an artifact in a report, in bytes.
const ARTIFACT_PIECE_BYTES: usize = 2 * 1024 * 1024;
/// Maximum length of the last message, in bytes. A report must fit into one gRPC message.
const MAX_MESSAGE_BYTES: usize = 1024 * 1024;

impl ThreadTask {
    pub(super) async fn handle_command(&mut self, command: Command) -> Option<EndReason> {
        match command {
            Command::Turn(turn) => self.accept_turn(turn).await,
            Command::Input(input) => self.add_input(input),
            Command::Interrupt { turn } => self.interrupt(turn),
            Command::Shutdown(order) => {
                if order.policy != ClosePolicy::FinishTurn || self.turn.is_none() {
                    return Some(EndReason::Shutdown(order));
                }
                self.inbox.finish(order);
            }
            Command::RunnerStops(order) => self.stop_with_runner(order),
        }
        None
    }

    /// Interrupts the running turn, if there is one. The program stops when the turn has ended, or after the grace
    /// period.
    fn stop_with_runner(&mut self, order: Shutdown) {
        self.runner_stops = true;
        if !self.inbox.is_finishing() {
            self.inbox.finish(order);
        }
        if let Some(running) = &self.turn {
            self.interrupt(running.number);
        }
    }

    pub(super) async fn accept_turn(&mut self, turn: Turn) {
        if turn.turn <= self.last_turn {
            return;
        }
        self.last_turn = turn.turn;
        self.prompts.remember(&turn);
        if self.turn.is_some() {
            self.next_turn = Some(turn);
        } else {
            self.begin_turn(&turn).await;
        }
    }

    /// Sends the turn to the program. Starts another program if the current one has ended or does not read.
    async fn begin_turn(&mut self, turn: &Turn) {
        let docs = self.docs_of(turn);
        if docs != self.launch.docs_directory {
            // The mounts of a running program cannot change. The next program continues the conversation.
            self.stop_program(self.timing.stop_grace).await;
            self.program_gone();
            self.launch.docs_directory = docs;
        }
        for _ in 0..2 {
            if self.agent.is_none() {
                match self.start_program().await {
                    Ok(()) => {}
                    Err(Unstarted::Failed(failure)) => {
                        self.report_begin_failure(turn.turn, failure.message).await;
                        return;
                    }
                    Err(Unstarted::Over(end_reason)) => {
                        self.over = Some(end_reason);
                        return;
                    }
                }
            }
            let prepared = self.prompts.give(turn, self.has_prompt);
            let before = match &mut self.snapshots {
                Some(snapshots) => snapshots.before().await,
                None => None,
            };
            if self
                .agent
                .as_mut()
                .is_some_and(|agent| agent.give(Order::Turn(prepared.clone())).is_ok())
            {
                self.has_prompt = true;
                self.usage.turn_began();
                let span = TurnSpan::begin(turn, &self.launch, &self.role);
                self.executor.toolbox.trace(span.context());
                self.turn = Some(RunningTurn {
                    number: turn.turn,
                    since: Instant::now(),
                    span,
                    output: Sha256::new(),
                    offered: BTreeMap::new(),
                    changes: Changes::default(),
                    before,
                    escalation: None,
                });
                self.meter.show(|shown| shown.activity.clear());
                self.transcript.begin_turn(turn.turn);
                for input in &turn.inputs {
                    self.transcript.text(TranscriptKind::Input, &input::to_text(input));
                }
                self.reporter
                    .report(Kind::TurnStarted(TurnStartedReport { turn: turn.turn }))
                    .await;
                if prepared.completed {
                    let prompt = PromptReport {
                        turn: turn.turn,
                        blocks: prepared.blocks,
                    };
                    self.reporter.report(Kind::Prompt(prompt)).await;
                }
                return;
            }
            self.kill_program().await;
        }
        self.report_begin_failure(turn.turn, InputError.to_string()).await;
    }

    async fn report_begin_failure(&mut self, turn: u32, message: String) {
        self.transcript.begin_turn(turn);
        self.transcript.end_turn(TranscriptKind::Error, &message, "");
        self.transcribe().await;
        let report = self.turn_report(turn, TurnOutcome::Errored, message);
        self.reporter.report(Kind::TurnEnded(report)).await;
    }

    /// Offers input to the running turn. Input that the turn does not accept is not reported as delivered, so the
    /// supervisor sends it again with the next turn.
    fn add_input(&mut self, running: RunningInput) {
        let RunningInput { number, turn, input } = running;
        let takes_more = |running: &&mut RunningTurn| running.number == turn && running.escalation.is_none();
        let Some(running) = self.turn.as_mut().filter(takes_more) else {
            return;
        };
        if number <= self.last_input {
            return;
        }
        let input = input.unwrap_or_default();
        let text = input::to_text(&input);
        let order = Order::Input { number, input };
        if self.agent.as_mut().is_some_and(|agent| agent.give(order).is_ok()) {
            self.last_input = number;
            running.offered.insert(number, text);
        }
    }

    /// Reports input as delivered. A program may claim this for any number at any time, so only input that was offered
    /// to its turn counts, and only once.
    pub(super) async fn report_input_taken(&mut self, number: u32) {
        if let Some(running) = &mut self.turn
            && let Some(input) = running.offered.remove(&number)
        {
            let turn = running.number;
            self.transcript.text(TranscriptKind::Input, &input);
            let delivered = InputDeliveredReport { number, turn };
            self.reporter.report(Kind::InputDelivered(delivered)).await;
        }
    }

    fn interrupt(&mut self, turn: u32) {
        let Some(running) = self.turn.as_mut().filter(|running| running.number == turn) else {
            return;
        };
        if running.escalation.is_none() {
            running.escalation = Some(Escalation {
                next: EscalationStep::Signal,
                at: Instant::now() + self.timing.interrupt_grace,
            });
            // A program that does not react receives a signal after the grace period.
            self.give(Order::Interrupt);
        }
    }

    /// Escalates an interruption because the turn has not ended in time.
    pub(super) async fn escalate(&mut self) {
        let Some(escalation) = self.turn.as_mut().and_then(|turn| turn.escalation.as_mut()) else {
            return;
        };
        match escalation.next {
            EscalationStep::Signal => {
                *escalation = Escalation {
                    next: EscalationStep::Kill,
                    at: Instant::now() + self.timing.interrupt_grace,
                };
                if let Some(agent) = &mut self.agent {
                    agent.signal();
                }
            }
            EscalationStep::Kill => {
                self.kill_program().await;
                self.end_turn(
                    TurnEnding::Interrupted,
                    "the program was killed: it did not end its turn".to_owned(),
                )
                .await;
            }
        }
    }

    /// Ends the running turn. Does nothing if no turn is running.
    pub(super) async fn end_turn(&mut self, ending: TurnEnding, message: String) {
        let Some(mut turn) = self.turn.take() else {
            return;
        };
        // Cancels the calls of the turn.
        self.calls.shutdown().await;
        let outcome = match ending {
            _ if turn.escalation.is_some() => TurnOutcome::Interrupted,
            TurnEnding::Completed => TurnOutcome::Completed,
            TurnEnding::Errored => TurnOutcome::Errored,
            TurnEnding::Interrupted => TurnOutcome::Interrupted,
        };
        let runner_stopped = self.runner_stops && outcome == TurnOutcome::Interrupted;
        let message = match outcome {
            TurnOutcome::Interrupted if runner_stopped => RUNNER_STOPPED.to_owned(),
            // Error messages of programs are formatted for a terminal.
            TurnOutcome::Errored => clean(&message),
            _ => message,
        };
        let message = cut(message, MAX_MESSAGE_BYTES);
        turn.output.update(&message);
        let diff = self.diff_of(turn.changes, turn.before).await;
        let mut diff_sha256 = String::new();
        if !diff.is_empty() {
            diff_sha256 = lower::encode_string(&Sha256::digest(&diff));
            let file = ProducedFile {
                name: format!("turn-{}.diff", turn.number),
                media_type: "text/x-diff".to_owned(),
                kind: FileKind::Diff,
                data: diff.clone().into_bytes(),
            };
            report_artifact(&self.reporter, turn.number, file).await;
        }
        let kind = match outcome {
            TurnOutcome::Completed => TranscriptKind::Message,
            TurnOutcome::Errored => TranscriptKind::Error,
            TurnOutcome::Interrupted | TurnOutcome::Unspecified => TranscriptKind::Notice,
        };
        let ending = match outcome {
            TurnOutcome::Interrupted => format!("The turn was interrupted: {message}"),
            _ => message.clone(),
        };
        self.transcript
            .end_turn(kind, ending.trim_end_matches([' ', ':']), &diff);
        self.transcribe().await;
        let took = turn.since.elapsed();
        self.usage.turn_ended(took);
        turn.span.end(outcome, took, self.usage.of_turn());
        self.show().await;
        let report = TurnEndedReport {
            output_sha256: lower::encode_string(&turn.output.finalize()),
            diff_sha256,
            runner_stopped,
            ..self.turn_report(turn.number, outcome, message)
        };
        self.reporter.report(Kind::TurnEnded(report)).await;
        if !self.inbox.is_finishing()
            && let Some(next) = self.next_turn.take()
        {
            self.begin_turn(&next).await;
        }
    }

    /// Returns the turn's changes in its workspace. If changes by commands are unknown, the diff ends with a note.
    async fn diff_of(&mut self, changes: Changes, before: Option<Snapshot>) -> String {
        let compared = match &mut self.snapshots {
            Some(snapshots) => snapshots.since(before).await,
            None => Ok(Difference::default()),
        };
        match compared {
            Ok(Difference { names, mut diff }) => {
                // The other files are those that tools wrote and Git ignores.
                let others = changes.diff_without(&names).await;
                if diff.len() + others.len() <= MAX_DIFF_BYTES {
                    diff.push_str(&others);
                }
                diff
            }
            Err(why) => {
                let mut diff = changes.diff_without(&BTreeSet::new()).await;
                if !diff.is_empty() {
                    diff.push_str(&format!("[changes made by commands are not shown: {why}]\n"));
                }
                diff
            }
        }
    }

    /// Returns the report of a turn without the digest of its output.
    fn turn_report(&self, turn: u32, outcome: TurnOutcome, message: String) -> TurnEndedReport {
        TurnEndedReport {
            turn,
            outcome: outcome.into(),
            message,
            usage: Some(self.usage.usage(Duration::ZERO)),
            ..TurnEndedReport::default()
        }
    }
}

/// Reports an artifact of a turn.
pub(super) async fn report_artifact(reporter: &ThreadReporter, turn: u32, file: ProducedFile) {
    let pieces = file.data.chunks(ARTIFACT_PIECE_BYTES);
    let last = pieces.len().saturating_sub(1);
    for (number, data) in pieces.enumerate() {
        let report = ArtifactReport {
            turn,
            name: file.name.clone(),
            kind: file.kind.as_str().to_owned(),
            media_type: file.media_type.clone(),
            data: data.to_vec().into(),
            append: number > 0,
            more: number < last,
        };
        reporter.report(Kind::Artifact(report)).await;
    }
}
