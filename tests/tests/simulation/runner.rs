//! A runner whose agents work for a while and complete their turns. The runner keeps its agents and its reports when a
//! connection is lost, and loses them when its machine dies.

use std::{collections::BTreeMap, future, rc::Rc, time::Duration};

use supervisor_core::ids::{Generation, RunnerId};
use tokio::{
    sync::mpsc,
    time::{Instant, interval, sleep, sleep_until, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use troupe_proto::supervisor::v1::{
    AttachRequest, AttachResponse, HeldThread, ReportAck, RunnerHeartbeat, RunnerHello, RunnerReport, RunnerWelcome,
    StartRefusal, StartRefused, StartThread, ThreadStoppedReport, TurnEndedReport, TurnOutcome, TurnStartedReport,
    attach_request::Message as ToSupervisor, attach_response::Message as FromSupervisor, deliver_input::Delivery,
    runner_report::Kind,
};
use troupe_tests::{
    client::{self, Runners},
    pair::RUNNER,
    rng::Rng,
    runner::hello,
};

use crate::{log::Log, net, shared::SharedState};

/// Interval of the runner's heartbeats.
const HEARTBEAT: Duration = Duration::from_millis(300);

/// Timeout of attaching.
const ATTACH_WITHIN: Duration = Duration::from_millis(800);

/// Maximum number of unsent messages; no simulation reaches it.
const OUTGOING: usize = 1_024;

/// An agent of the runner.
struct Attempt {
    generation: u32,
    turn: u32,
    /// The time at which the turn ends; `None` while no turn runs.
    ends: Option<Instant>,
    /// Number of reports about the agent.
    reports: u64,
    /// The reports that the supervisor has not acknowledged.
    unacknowledged: Vec<RunnerReport>,
    is_stopped: bool,
}

/// The runner, until its machine dies.
struct Runner {
    id: &'static str,
    capacity: u32,
    rng: Rng,
    shared: Rc<SharedState>,
    held: BTreeMap<String, Attempt>,
}

/// Attaches again each time the stream ends.
pub async fn run(id: &'static str, seed: u64, shared: Rc<SharedState>) -> turmoil::Result {
    let mut rng = Rng::new(seed, id);
    let mut runner = Runner {
        id,
        // Zero: without a limit.
        capacity: rng.pick(&[0, 2]),
        rng,
        shared,
        held: BTreeMap::new(),
    };
    let supervisors = runner.shared.plan.supervisors.iter();
    let clients = supervisors.map(|host| client::runners_over(net::channel(host), Some(RUNNER)));
    let mut clients: Vec<Runners> = clients.collect();
    loop {
        let any = runner.rng.below(clients.len() as u64);
        runner.attach(&mut clients[usize::try_from(any).unwrap()]).await;
        let pause = runner.rng.millis(20..=120);
        sleep(pause).await;
    }
}

impl Runner {
    /// Attaches and serves one stream until it breaks.
    async fn attach(&mut self, client: &mut Runners) {
        let (outgoing, stream) = mpsc::channel(OUTGOING);
        let hello = said(ToSupervisor::Hello(self.hello()));
        // Sent before the call, because the supervisor responds only after it has read the hello.
        outgoing.send(hello).await.unwrap();
        let attached = timeout(ATTACH_WITHIN, client.attach(ReceiverStream::new(stream))).await;
        let Ok(Ok(answer)) = attached else { return };
        let mut incoming = answer.into_inner();
        let mut heartbeat = interval(HEARTBEAT);
        loop {
            let next_end = self.held.values().filter_map(|attempt| attempt.ends).min();
            let news = tokio::select! {
                biased;
                heard = incoming.message() => match heard {
                    Ok(Some(AttachResponse { message: Some(message) })) => self.receive(message),
                    Ok(_) | Err(_) => return,
                },
                () = until(next_end) => self.end_turns(),
                _ = heartbeat.tick() => vec![ToSupervisor::Heartbeat(RunnerHeartbeat {})],
            };
            if !self.shared.calm.get() && self.rng.one_in(60) {
                return;
            }
            for message in news {
                if outgoing.send(said(message)).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Returns the hello with the remaining attempts. It does not contain agents that have ended.
    fn hello(&mut self) -> RunnerHello {
        self.held.retain(|_, attempt| !attempt.is_stopped);
        let threads = self.held.iter().map(|(thread, attempt)| HeldThread {
            thread_id: thread.clone(),
            generation: attempt.generation,
            turn: attempt.turn,
            report_sequence: attempt.reports,
        });
        RunnerHello {
            capacity: self.capacity,
            threads: threads.collect(),
            ..hello(self.id)
        }
    }

    /// Processes a message and returns the messages to send in response.
    fn receive(&mut self, message: FromSupervisor) -> Vec<ToSupervisor> {
        match message {
            FromSupervisor::Welcome(welcome) => self.welcomed(welcome),
            FromSupervisor::ReportAck(ack) => {
                self.acknowledged(&ack);
                Vec::new()
            }
            FromSupervisor::StartThread(start) => self.start(start),
            FromSupervisor::DeliverInput(input) => match input.delivery {
                Some(Delivery::Turn(turn)) => self.begin(&input.thread_id, input.generation, turn.turn),
                Some(Delivery::Running(_)) | None => Vec::new(),
            },
            FromSupervisor::Interrupt(interrupt) => match self.attempt(&interrupt.thread_id, interrupt.generation) {
                Some(attempt) if attempt.turn == interrupt.turn && attempt.ends.is_some() => {
                    self.end(&interrupt.thread_id, TurnOutcome::Interrupted)
                }
                Some(_) | None => Vec::new(),
            },
            FromSupervisor::Shutdown(shutdown) => match self.attempt(&shutdown.thread_id, shutdown.generation) {
                Some(attempt) if !attempt.is_stopped => {
                    attempt.is_stopped = true;
                    attempt.ends = None;
                    self.shared.program_ended(&shutdown.thread_id, shutdown.generation);
                    let stopped = ThreadStoppedReport {
                        detail: String::from("exit status 0"),
                        killed: false,
                    };
                    self.report(&shutdown.thread_id, Kind::Stopped(stopped))
                }
                Some(_) | None => Vec::new(),
            },
            FromSupervisor::ToolDecision(_) | FromSupervisor::GoAway(_) | FromSupervisor::TranscriptAck(_) => {
                Vec::new()
            }
        }
    }

    /// Continues the permitted attempts and resends the unacknowledged reports.
    fn welcomed(&mut self, welcome: RunnerWelcome) -> Vec<ToSupervisor> {
        let mut again = Vec::new();
        for verdict in welcome.threads {
            if !verdict.go_on {
                if let Some(attempt) = self.held.remove(&verdict.thread_id) {
                    self.killed(&verdict.thread_id, &attempt);
                }
            } else if let Some(attempt) = self.held.get_mut(&verdict.thread_id) {
                let applied = verdict.applied_report_sequence;
                attempt.unacknowledged.retain(|report| report.report_sequence > applied);
                again.extend(attempt.unacknowledged.iter().cloned().map(ToSupervisor::Report));
            }
        }
        again
    }

    /// Ends the program of an attempt that the supervisors do not continue. The log must say that the attempt is over,
    /// or that its turn did not arrive.
    fn killed(&self, thread: &str, attempt: &Attempt) {
        self.shared.program_ended(thread, attempt.generation);
        let state = Log::of(&self.shared.store).state_at(u64::MAX);
        let present = thread.parse().ok().and_then(|thread| state.thread(thread));
        let continues = present.is_some_and(|present| {
            present.is_held_by(&RunnerId::new(self.id), Generation::new(attempt.generation))
                && !present.turn.awaits_dispatch()
                && present.turn.number().get() == attempt.turn
        });
        if continues {
            let violation = format!("the program of {thread} was killed on {} while it was at work", self.id);
            self.shared.violations.borrow_mut().push(violation);
        }
    }

    fn acknowledged(&mut self, ack: &ReportAck) {
        let Some(attempt) = self.attempt(&ack.thread_id, ack.generation) else {
            return;
        };
        attempt
            .unacknowledged
            .retain(|report| report.report_sequence != ack.report_sequence);
        if attempt.is_stopped && attempt.unacknowledged.is_empty() {
            self.held.remove(&ack.thread_id);
        }
    }

    fn start(&mut self, start: StartThread) -> Vec<ToSupervisor> {
        if self.attempt(&start.thread_id, start.generation).is_some() {
            // A start is repeated if the supervisor cannot know whether it arrived.
            return Vec::new();
        }
        if !self.shared.calm.get() && self.rng.one_in(12) {
            return vec![ToSupervisor::StartRefused(StartRefused {
                thread_id: start.thread_id,
                generation: start.generation,
                refusal: StartRefusal::NoCapacity.into(),
                message: String::from("the machine is busy"),
            })];
        }
        let attempt = Attempt {
            generation: start.generation,
            turn: 0,
            ends: None,
            reports: 0,
            unacknowledged: Vec::new(),
            is_stopped: false,
        };
        self.shared.program_started(self.id, &start.thread_id, start.generation);
        // A new attempt ends an older one.
        if let Some(older) = self.held.insert(start.thread_id.clone(), attempt) {
            self.shared.program_ended(&start.thread_id, older.generation);
        }
        self.begin(&start.thread_id, start.generation, start.turn.unwrap().turn)
    }

    /// Begins a turn, unless it has already begun.
    fn begin(&mut self, thread: &str, generation: u32, turn: u32) -> Vec<ToSupervisor> {
        let work = self.rng.millis(10..=250);
        match self.attempt(thread, generation) {
            Some(attempt) if attempt.turn < turn && !attempt.is_stopped => {
                attempt.turn = turn;
                attempt.ends = Some(Instant::now() + work);
                self.shared.turn_began(thread, generation, turn);
                self.report(thread, Kind::TurnStarted(TurnStartedReport { turn }))
            }
            Some(_) | None => Vec::new(),
        }
    }

    /// Ends the turns whose time is over.
    fn end_turns(&mut self) -> Vec<ToSupervisor> {
        let now = Instant::now();
        let is_over = |attempt: &Attempt| attempt.ends.is_some_and(|ends| ends <= now);
        let over = self.held.iter().filter(|(_, attempt)| is_over(attempt));
        let over: Vec<String> = over.map(|(thread, _)| thread.clone()).collect();
        let mut news = Vec::new();
        for thread in over {
            let outcome = if self.rng.one_in(8) {
                TurnOutcome::Errored
            } else {
                TurnOutcome::Completed
            };
            news.extend(self.end(&thread, outcome));
        }
        news
    }

    fn end(&mut self, thread: &str, outcome: TurnOutcome) -> Vec<ToSupervisor> {
        let Some(attempt) = self.held.get_mut(thread) else {
            return Vec::new();
        };
        attempt.ends = None;
        let ended = TurnEndedReport {
            turn: attempt.turn,
            outcome: outcome.into(),
            message: format!("turn {} of attempt {}", attempt.turn, attempt.generation),
            ..TurnEndedReport::default()
        };
        self.report(thread, Kind::TurnEnded(ended))
    }

    /// Returns the next report about an attempt, and stores the report until the supervisor acknowledges it.
    fn report(&mut self, thread: &str, kind: Kind) -> Vec<ToSupervisor> {
        let Some(attempt) = self.held.get_mut(thread) else {
            return Vec::new();
        };
        attempt.reports += 1;
        let report = RunnerReport {
            thread_id: thread.to_owned(),
            generation: attempt.generation,
            report_sequence: attempt.reports,
            kind: Some(kind),
        };
        attempt.unacknowledged.push(report.clone());
        vec![ToSupervisor::Report(report)]
    }

    fn attempt(&mut self, thread: &str, generation: u32) -> Option<&mut Attempt> {
        self.held
            .get_mut(thread)
            .filter(|attempt| attempt.generation == generation)
    }
}

fn said(message: ToSupervisor) -> AttachRequest {
    AttachRequest { message: Some(message) }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => future::pending().await,
    }
}
