//! The runner's state: its threads, pending messages to the supervisor, and the handling of the supervisor's commands.
//! The main loop owns it. Nothing here blocks.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::PathBuf,
    time::Duration,
};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tracing::{debug, warn};
use troupe_proto::common::v1::Sandbox;
use troupe_proto::supervisor::v1::{
    AttachRequest, AttachResponse, ClosePolicy, CommandAck, DeliverInput, HeldThread, InterruptTurn, ReportAck,
    RunnerDraining, RunnerHello, RunnerReport, RunnerWelcome, ShutdownThread, StartRefusal, StartRefused, StartThread,
    ThreadOutput, ThreadStoppedReport, TranscriptBatch, TranscriptEntry, TranscriptKind, attach_request::Message,
    attach_response, deliver_input::Delivery, runner_report::Kind,
};

use crate::{
    agent::{LaunchSpec, Secret, StartFailure},
    bearer::Bearer,
    config::RunnerConfig,
    env::{is_plain_id, prune, scratch_of, state_of},
    kinds::Kinds,
    launcher,
    outbox::{Attempt, Numbered, Outbox},
    prompt,
    questions::Questions,
    thread::{self, Command, Shutdown, ThreadEvent, ThreadHandle, ThreadStart},
    tools::Toolbox,
};

/// Maximum number of telemetry and output messages that wait for the connection. The oldest is dropped first.
const TRANSIENT_CAPACITY: usize = 256;
/// Maximum number of the batches of a thread's transcript that wait for the supervisor. An active thread makes about
/// four batches a second.
const MAX_BATCHES: usize = 256;
/// Maximum size of these batches, in bytes.
const MAX_BATCH_BYTES: usize = 8 * 1024 * 1024;
/// Maximum grace period: the wire format permits values that are outside of the clock's range.
const LONGEST_GRACE: Duration = Duration::from_secs(24 * 60 * 60);

/// The effect of a supervisor's message on the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The stream continues.
    Stay,
    /// The supervisor requests a reattach, with a reason.
    GoAway(String),
}

pub(crate) struct RunnerState {
    config: RunnerConfig,
    kinds: Kinds,
    tools: Channel,
    events: mpsc::Sender<(Attempt, ThreadEvent)>,
    /// Set while the runner drains and accepts no more threads. Fires when no thread is left.
    drained: Option<CancellationToken>,
    /// The only session whose threads the runner executes. `None`: threads of any session.
    session_id: Option<String>,
    /// Number of times that a runner for single use has accepted a thread or, after its first thread, sent a hello with
    /// its session. If a thread does not start and the number is 1, the runner is available again.
    uses: usize,
    /// Fires when the last thread of a runner for single use is gone.
    used_up: CancellationToken,
    threads: BTreeMap<String, Held>,
    /// Abandoned attempts whose programs are being stopped, each with a token that fires when its program is gone.
    leaving: BTreeMap<Attempt, CancellationToken>,
    outbox: Outbox<Kind>,
    /// Entries of transcripts, in batches.
    transcripts: Outbox<Vec<TranscriptEntry>>,
    /// Number of entries of an attempt that were dropped because the supervisor is not reachable.
    dropped: BTreeMap<Attempt, usize>,
    questions: Questions,
    /// Acknowledgements and refusals, at most one per command, and the drain notice. Only the refusals remain valid on
    /// the next stream.
    control: VecDeque<Message>,
    /// Telemetry and output.
    transient: VecDeque<Message>,
    /// The threads whose turn was interrupted because the runner stops.
    interrupted: BTreeSet<String>,
}

struct Held {
    generation: u32,
    /// The last dispatched turn.
    turn: u32,
    /// The thread's task. `None`: the program has ended, and the thread's last reports are not durable yet.
    task: Option<ThreadHandle>,
}

impl Held {
    fn attempt(&self, thread_id: &str) -> Attempt {
        Attempt::new(thread_id, self.generation)
    }
}

impl RunnerState {
    pub(crate) fn new(config: RunnerConfig, tools: Channel, events: mpsc::Sender<(Attempt, ThreadEvent)>) -> Self {
        Self {
            kinds: Kinds::new(&config),
            session_id: config.session_id.clone(),
            config,
            tools,
            events,
            drained: None,
            uses: 0,
            used_up: CancellationToken::new(),
            threads: BTreeMap::new(),
            leaving: BTreeMap::new(),
            outbox: Outbox::new(),
            transcripts: Outbox::new(),
            dropped: BTreeMap::new(),
            questions: Questions::default(),
            control: VecDeque::new(),
            transient: VecDeque::new(),
            interrupted: BTreeSet::new(),
        }
    }

    /// Determines the restrictions that the programs can enforce. Must complete before the first hello.
    pub(crate) async fn prepare(&self) {
        self.kinds.prepare(self.has_secrets()).await;
        prune(&self.config.state).await;
    }

    // === the stream ===

    /// Returns the hello: the runner's identity and its threads.
    pub(crate) fn hello(&mut self) -> RunnerHello {
        if self.uses > 0 {
            self.uses += 1;
        }
        let held = self
            .threads
            .iter()
            .map(|(thread_id, held)| HeldThread {
                thread_id: thread_id.clone(),
                generation: held.generation,
                turn: held.turn,
                report_sequence: self.outbox.last(&held.attempt(thread_id)),
            })
            .collect();
        RunnerHello {
            runner_id: self.config.runner_id.clone(),
            kinds: self.kinds.describe(),
            labels: self.config.labels.clone().into_iter().collect(),
            capacity: self.config.capacity,
            threads: held,
            session_id: self.session_id.clone().unwrap_or_default(),
            single_use: self.config.is_single_use,
        }
    }

    /// Begins a new stream. Threads continue or stop as the supervisor orders, and reports that it does not have are
    /// sent again. A thread that the welcome does not mention continues.
    pub(crate) fn welcome(&mut self, welcome: &RunnerWelcome) {
        // Only refusals of starts are kept: the hello may have named these threads, so the supervisor does not know yet
        // that they did not start.
        self.control
            .retain(|message| matches!(message, Message::StartRefused(_)));
        self.transient.clear();
        if self.is_draining() {
            self.announce_draining();
        }
        for verdict in &welcome.threads {
            let Some(held) = self.threads.get(&verdict.thread_id) else {
                continue;
            };
            let attempt = held.attempt(&verdict.thread_id);
            if verdict.go_on {
                self.outbox.acknowledge(&attempt, verdict.applied_report_sequence);
                self.remove_if_ended(&attempt);
            } else {
                self.release(&attempt);
            }
        }
        self.outbox.rewind();
        self.transcripts.rewind();
        self.questions.rewind();
        self.update_drained();
    }

    pub(crate) fn has_outgoing(&self) -> bool {
        !self.control.is_empty()
            || !self.transient.is_empty()
            || self.transcripts.has_unsent()
            || self.outbox.has_unsent()
            || self.questions.has_unsent()
    }

    /// Returns the next message for the supervisor.
    pub(crate) fn next_outgoing(&mut self) -> Option<AttachRequest> {
        let message = self
            .control
            .pop_front()
            // Sent before reports, so that the last telemetry arrives before the end of its turn. The queue is short
            // and bounded.
            .or_else(|| self.transient.pop_front())
            // Sent before reports, so that a transcript is complete when its turn ends.
            .or_else(|| self.transcripts.next_unsent().map(batch))
            .or_else(|| self.outbox.next_unsent().map(report))
            .or_else(|| self.questions.next_unsent().map(Message::ToolRequest))?;
        Some(AttachRequest { message: Some(message) })
    }

    // === the supervisor's commands ===

    pub(crate) fn command(&mut self, response: AttachResponse) -> Flow {
        use attach_response::Message as Incoming;

        match response.message {
            Some(Incoming::ReportAck(ack)) => self.acknowledged(&ack),
            Some(Incoming::TranscriptAck(ack)) => {
                let attempt = Attempt::new(ack.thread_id, ack.generation);
                self.transcripts.acknowledge(&attempt, ack.batch);
                self.remove_if_ended(&attempt);
            }
            Some(Incoming::StartThread(start)) => {
                self.acknowledge(&start.command_id);
                self.start(start);
            }
            Some(Incoming::DeliverInput(input)) => self.deliver(input),
            Some(Incoming::Interrupt(interrupt)) => self.interrupt(interrupt),
            Some(Incoming::Shutdown(shutdown)) => self.shut_down(shutdown),
            Some(Incoming::GoAway(go_away)) => return Flow::GoAway(go_away.reason),
            Some(Incoming::ToolDecision(decision)) => self.questions.decide(decision),
            // A message of a newer release is ignored.
            Some(Incoming::Welcome(_)) | None => debug!("an unexpected message was ignored"),
        }
        self.update_drained();
        Flow::Stay
    }

    fn acknowledged(&mut self, ack: &ReportAck) {
        let attempt = Attempt::new(ack.thread_id.clone(), ack.generation);
        self.outbox.acknowledge(&attempt, ack.report_sequence);
        self.remove_if_ended(&attempt);
    }

    fn start(&mut self, start: StartThread) {
        let attempt = Attempt::new(start.thread_id, start.generation);
        if let Some(held) = self.threads.get(&attempt.thread_id) {
            if held.generation >= attempt.generation {
                debug!(?attempt, "the attempt has already started");
                return;
            }
            let earlier = held.attempt(&attempt.thread_id);
            self.release(&earlier);
        }
        if let Some(failure) = self.capacity_failure(&attempt, &start.session_id) {
            self.refuse(&attempt, failure);
            return;
        }
        let resolved = start.resolved.unwrap_or_default();
        let sandbox = resolved.sandbox();
        let role = match self.kinds.choose(&resolved) {
            Ok(role) => role,
            Err(failure) => {
                self.refuse(&attempt, failure);
                return;
            }
        };
        let bearer = match start.thread_token.as_str() {
            "" => None,
            token => Bearer::new(token)
                .inspect_err(|error| warn!(?attempt, %error, "calls of the thread's tools will fail"))
                .ok(),
        };
        let turn = start.turn.as_ref().map_or(0, |turn| turn.turn);
        if self.config.is_single_use {
            self.uses += 1;
            self.session_id = Some(start.session_id.clone());
        }
        let handle = thread::spawn(ThreadStart {
            launch: LaunchSpec {
                session_id: start.session_id,
                depth: start.depth,
                instructions: prompt::instructions(start.turn.as_ref(), &resolved),
                resolved,
                token: (!start.thread_token.is_empty()).then(|| Secret::new(start.thread_token.clone())),
                // The supervisor's own URL may not be reachable from this machine, but the runner's configured URL is.
                supervisor_url: self.config.supervisor_url.clone(),
                supervisor_authorities: self.config.tls.authorities.clone(),
                offered: Vec::new(),
                tool_policy: start.tool_policy.unwrap_or_default(),
                working_directory: (!start.working_directory.is_empty()).then(|| start.working_directory.into()),
                docs_directory: None,
                scratch: scratch_of(&self.config.scratch, &attempt),
                state: state_of(&self.config.state, &attempt.thread_id),
                had_turns: false,
                hidden: self.hidden(sandbox),
                has_secrets: self.has_secrets(),
                attempt: attempt.clone(),
            },
            first_turn: start.turn,
            role,
            worktree: self.config.worktrees.filter(|_| sandbox != Sandbox::ReadOnly),
            // Tool calls use the runner's own connection settings.
            toolbox: Toolbox::new(self.tools.clone(), bearer, attempt.thread_id.clone()),
            timing: self.config.timing,
            events: self.events.clone(),
            predecessor: self.predecessor(&attempt.thread_id),
        });
        let held = Held {
            generation: attempt.generation,
            turn,
            task: Some(handle),
        };
        self.threads.insert(attempt.thread_id, held);
    }

    /// Returns whether files must be hidden even from programs without restrictions. With a launcher, only the
    /// directories of other threads must be hidden.
    fn has_secrets(&self) -> bool {
        !self.config.hidden.is_empty() || launcher::is_used()
    }

    /// Returns the paths that are hidden from the programs of one thread: the operator's directories, the state of
    /// other threads, and, without full access, the credentials of the runner's user.
    fn hidden(&self, sandbox: Sandbox) -> Vec<PathBuf> {
        let own = [&self.config.state, &self.config.scratch];
        let mut hidden: Vec<PathBuf> = self.config.hidden.iter().chain(own).cloned().collect();
        if sandbox != Sandbox::FullAccess {
            let home = std::env::var_os("HOME").map(PathBuf::from);
            hidden.extend(self.config.programs.hidden_from(home.as_deref()));
        }
        hidden
    }

    /// Returns the token of the thread's latest attempt that is still being stopped. That attempt itself waits for its
    /// predecessors.
    fn predecessor(&self, thread_id: &str) -> Option<CancellationToken> {
        let (_, gone) = self
            .leaving
            .iter()
            .rfind(|(attempt, _)| attempt.thread_id == thread_id)?;
        Some(gone.clone())
    }

    fn capacity_failure(&self, attempt: &Attempt, session_id: &str) -> Option<StartFailure> {
        let (refusal, message) = if self.is_draining() {
            (StartRefusal::NoCapacity, "the runner is stopping".to_owned())
        } else if let Some(only) = self.session_id.as_ref().filter(|only| *only != session_id) {
            let message = format!("the runner executes threads of session {only} only");
            (StartRefusal::NoCapacity, message)
        } else if self.config.capacity > 0 && self.used_slots(attempt) >= self.config.capacity as usize {
            let message = format!("the runner executes {} threads already", self.config.capacity);
            (StartRefusal::NoCapacity, message)
        } else if !is_plain_id(&attempt.thread_id) {
            (
                StartRefusal::NoProgram,
                format!("bad thread id {:?}", attempt.thread_id),
            )
        } else {
            return None;
        };
        Some(StartFailure { refusal, message })
    }

    fn deliver(&mut self, input: DeliverInput) {
        let attempt = Attempt::new(input.thread_id, input.generation);
        let command = match input.delivery {
            Some(Delivery::Turn(turn)) => Command::Turn(turn),
            Some(Delivery::Running(running)) => Command::Input(running),
            None => return,
        };
        self.deliver_command(&attempt, &input.command_id, command);
    }

    fn interrupt(&mut self, interrupt: InterruptTurn) {
        let attempt = Attempt::new(interrupt.thread_id, interrupt.generation);
        let command = Command::Interrupt { turn: interrupt.turn };
        self.deliver_command(&attempt, &interrupt.command_id, command);
    }

    fn shut_down(&mut self, shutdown: ShutdownThread) {
        let policy = shutdown.close_policy();
        let grace = shutdown.grace.and_then(|grace| Duration::try_from(grace).ok());
        let attempt = Attempt::new(shutdown.thread_id, shutdown.generation);
        let command = Command::Shutdown(Shutdown {
            policy,
            grace: grace.unwrap_or(self.config.timing.stop_grace).min(LONGEST_GRACE),
            reason: shutdown.reason,
            thread_goes_on: shutdown.thread_goes_on,
        });
        self.deliver_command(&attempt, &shutdown.command_id, command);
    }

    /// Sends a command to its thread. Commands for an earlier attempt are dropped. Commands for an unknown attempt are
    /// answered with a report that the attempt has stopped.
    fn deliver_command(&mut self, attempt: &Attempt, command_id: &str, command: Command) {
        match self.threads.get_mut(&attempt.thread_id) {
            Some(held) if held.generation == attempt.generation => {
                let turn = match &command {
                    Command::Turn(turn) => turn.turn,
                    Command::Input(_) | Command::Interrupt { .. } | Command::Shutdown(_) | Command::RunnerStops(_) => 0,
                };
                if let Some(thread) = &held.task
                    && !thread.command(command)
                {
                    // The command is not acknowledged, so the supervisor sends it again.
                    warn!(?attempt, "a thread does not accept commands");
                    return;
                }
                held.turn = held.turn.max(turn);
            }
            Some(held) if held.generation > attempt.generation => debug!(?attempt, "a command for an earlier attempt"),
            Some(_) | None => self.report_unknown(attempt),
        }
        self.acknowledge(command_id);
    }

    fn acknowledge(&mut self, command_id: &str) {
        if !command_id.is_empty() {
            self.control.push_back(Message::CommandAck(CommandAck {
                command_id: command_id.to_owned(),
            }));
        }
    }

    fn refuse(&mut self, attempt: &Attempt, failure: StartFailure) {
        self.control.push_back(Message::StartRefused(StartRefused {
            thread_id: attempt.thread_id.clone(),
            generation: attempt.generation,
            refusal: failure.refusal.into(),
            message: failure.message,
        }));
    }

    /// Reports an unknown attempt as stopped. An earlier attempt of the same thread is superseded.
    fn report_unknown(&mut self, attempt: &Attempt) {
        if let Some(held) = self.threads.get(&attempt.thread_id) {
            let earlier = held.attempt(&attempt.thread_id);
            self.release(&earlier);
        }
        let stopped = ThreadStoppedReport {
            detail: "this runner does not have the thread".to_owned(),
            killed: false,
        };
        self.outbox.record(attempt, Kind::Stopped(stopped));
        let held = Held {
            generation: attempt.generation,
            turn: 0,
            task: None,
        };
        self.threads.insert(attempt.thread_id.clone(), held);
    }

    // === the threads' events ===

    pub(crate) fn handle_event(&mut self, attempt: &Attempt, event: ThreadEvent) {
        self.apply_event(attempt, event);
        self.update_drained();
    }

    fn apply_event(&mut self, attempt: &Attempt, event: ThreadEvent) {
        if matches!(event, ThreadEvent::Gone) && self.leaving.remove(attempt).is_some() {
            return;
        }
        let Some(held) = self
            .threads
            .get_mut(&attempt.thread_id)
            .filter(|held| held.generation == attempt.generation)
        else {
            // The attempt was abandoned.
            return;
        };
        match event {
            ThreadEvent::Gone => {
                held.task = None;
                self.remove_if_ended(attempt);
            }
            ThreadEvent::Refused(failure) => {
                self.threads.remove(&attempt.thread_id);
                if self.uses == 1 {
                    self.uses = 0;
                    self.session_id.clone_from(&self.config.session_id);
                }
                self.refuse(attempt, failure);
            }
            ThreadEvent::Report(kind) => {
                // The last report of a thread. The thread's slot must be free when the supervisor receives the report,
                // although the task has not ended yet.
                if matches!(kind, Kind::Stopped(_)) {
                    held.task = None;
                }
                if matches!(&kind, Kind::TurnEnded(ended) if ended.runner_stopped) {
                    self.interrupted.insert(attempt.thread_id.clone());
                }
                self.outbox.record(attempt, kind);
            }
            ThreadEvent::Transcript(entries) => self.transcribe(attempt, entries),
            ThreadEvent::Question(question) => self.questions.ask(question),
            ThreadEvent::Telemetry(telemetry) => self.show(Message::Telemetry(telemetry)),
            ThreadEvent::Output(text) => self.show(Message::Output(ThreadOutput {
                thread_id: attempt.thread_id.clone(),
                generation: attempt.generation,
                text,
            })),
        }
    }

    /// Records a batch of a transcript. While the supervisor is not reachable, batches beyond the maximum are dropped,
    /// and the next batch begins with a notice.
    fn transcribe(&mut self, attempt: &Attempt, mut entries: Vec<TranscriptEntry>) {
        let waiting = self.transcripts.unacknowledged(attempt);
        let (batches, bytes) = waiting.fold((0, 0), |(batches, bytes), entries| {
            let size: usize = entries.iter().map(prost::Message::encoded_len).sum();
            (batches + 1, bytes + size)
        });
        if batches >= MAX_BATCHES || bytes >= MAX_BATCH_BYTES {
            *self.dropped.entry(attempt.clone()).or_default() += entries.len();
            return;
        }
        if let Some(dropped) = self.dropped.remove(attempt) {
            let notice = TranscriptEntry {
                kind: TranscriptKind::Notice.into(),
                text: format!("{dropped} entries are missing: the supervisor was not reachable"),
                ..TranscriptEntry::default()
            };
            entries.insert(0, notice);
        }
        self.transcripts.record(attempt, entries);
    }

    fn show(&mut self, message: Message) {
        if self.transient.len() == TRANSIENT_CAPACITY {
            self.transient.pop_front();
        }
        self.transient.push_back(message);
    }

    /// Removes an attempt that has ended and whose reports are all durable.
    fn remove_if_ended(&mut self, attempt: &Attempt) {
        let ended = self
            .threads
            .get(&attempt.thread_id)
            .is_some_and(|held| held.generation == attempt.generation && held.task.is_none());
        if ended && self.outbox.is_clear(attempt) && self.transcripts.is_clear(attempt) {
            self.threads.remove(&attempt.thread_id);
            self.forget(attempt);
        }
    }

    /// Stops an attempt and drops its reports.
    fn release(&mut self, attempt: &Attempt) {
        self.forget(attempt);
        if let Some(held) = self.threads.remove(&attempt.thread_id) {
            self.stop_thread(attempt.clone(), held);
        }
    }

    fn forget(&mut self, attempt: &Attempt) {
        self.outbox.forget(attempt);
        self.transcripts.forget(attempt);
        self.dropped.remove(attempt);
    }

    fn stop_thread(&mut self, attempt: Attempt, held: Held) {
        if let Some(thread) = held.task {
            self.leaving.insert(attempt, thread.abandon());
        }
    }

    // === the end ===

    /// Stops accepting threads, and reports this to the supervisor on this stream and every later one. Returns a token
    /// that fires when no thread is left and all their reports are durable.
    pub(crate) fn drain(&mut self) -> CancellationToken {
        let drained = self.begin_draining();
        self.update_drained();
        drained
    }

    fn begin_draining(&mut self) -> CancellationToken {
        if !self.is_draining() {
            self.announce_draining();
        }
        self.drained.get_or_insert_default().clone()
    }

    /// Returns whether the runner accepts no more threads.
    pub(crate) const fn is_draining(&self) -> bool {
        self.drained.is_some()
    }

    /// Returns whether the runner waits for threads. A runner for single use waits only for its first thread.
    pub(crate) const fn is_ready(&self) -> bool {
        !self.is_draining() && self.uses == 0
    }

    /// Returns whether the runner ends after its first session.
    pub(crate) const fn is_for_single_use(&self) -> bool {
        self.config.is_single_use
    }

    /// Returns a token that fires when the last thread of a runner for single use is gone.
    pub(crate) fn used_up(&self) -> CancellationToken {
        self.used_up.clone()
    }

    fn announce_draining(&mut self) {
        self.control.push_back(Message::Draining(RunnerDraining {}));
    }

    fn update_drained(&mut self) {
        // The drain notice is sent before the last report. Otherwise the supervisor would place another thread in the
        // slot that the report frees.
        if self.uses > 0 && !self.has_programs() {
            self.begin_draining();
            self.used_up.cancel();
        }
        if let Some(drained) = &self.drained
            && self.threads.is_empty()
            && self.leaving.is_empty()
        {
            drained.cancel();
        }
    }

    /// Interrupts the running turns, and stops every program when its turn has ended or after `grace`. The threads stay
    /// open and report how their turns ended.
    pub(crate) fn interrupt_all(&self, grace: Duration) {
        for (thread_id, held) in &self.threads {
            let Some(thread) = &held.task else { continue };
            let stop = Shutdown {
                policy: ClosePolicy::Terminate,
                grace,
                reason: thread::RUNNER_STOPPED.to_owned(),
                thread_goes_on: true,
            };
            if !thread.command(Command::RunnerStops(stop)) {
                warn!(thread_id, "a thread does not accept commands; killing its program");
            }
        }
    }

    /// Returns the threads whose turn was interrupted because the runner stops.
    pub(crate) fn interrupted(&self) -> Vec<String> {
        self.interrupted.iter().cloned().collect()
    }

    /// Stops all threads. Their earlier reports are still sent.
    pub(crate) fn stop_all(&mut self) {
        for (thread_id, held) in std::mem::take(&mut self.threads) {
            self.stop_thread(Attempt::new(thread_id, held.generation), held);
        }
    }

    /// Returns whether a program may still be running.
    pub(crate) fn has_programs(&self) -> bool {
        self.running_threads() > 0 || !self.leaving.is_empty()
    }

    /// Returns how many slots are not available for this attempt. In a runner for single use these slots include the
    /// slots of programs that are being stopped, except for programs of the same thread.
    fn used_slots(&self, attempt: &Attempt) -> usize {
        let others = self
            .leaving
            .keys()
            .filter(|leaving| leaving.thread_id != attempt.thread_id);
        let leaving = if self.config.is_single_use { others.count() } else { 0 };
        self.running_threads() + leaving
    }

    fn running_threads(&self) -> usize {
        self.threads.values().filter(|held| held.task.is_some()).count()
    }
}

fn batch(numbered: Numbered<Vec<TranscriptEntry>>) -> Message {
    Message::Transcript(TranscriptBatch {
        thread_id: numbered.attempt.thread_id,
        generation: numbered.attempt.generation,
        batch: numbered.sequence,
        entries: numbered.report,
    })
}

fn report(numbered: Numbered<Kind>) -> Message {
    Message::Report(RunnerReport {
        thread_id: numbered.attempt.thread_id,
        generation: numbered.attempt.generation,
        report_sequence: numbered.sequence,
        kind: Some(numbered.report),
    })
}
