//! Runs a script against a pair and keeps a mirror of the session's log.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, mem,
    path::Path,
    time::Duration,
};

use supervisor_core::{
    effect::{PendingEffect, pending_effect},
    ids::ThreadId,
    rules::graph,
    settings::{Limits as ServiceLimits, Urgency},
    state::thread::Thread,
    status::StatusKind,
};
use tokio::task::JoinSet;
use tonic::{Code, Status};
use troupe_proto::{
    fault::reason_of,
    supervisor::v1::{
        AcknowledgeMailboxRequest, ArtifactReport, Budget, CloseAgentRequest, CloseSessionRequest, CreateEdgeRequest,
        DeleteEdgeRequest, Event, InputDeliveredReport, InterruptAgentRequest, Limits, OnLimit, PolicyGapReport,
        ResolveApprovalRequest, ResumeAgentRequest, SendHandoffRequest, SendInputRequest, SetThreadNoteRequest,
        SpawnAgentRequest, ThreadStoppedReport, TurnEndedReport, TurnOutcome, TurnStartedReport, UpdateSessionRequest,
        UpdateThreadBudgetRequest, Usage, WakePolicy, event::Kind, runner_report::Kind as Report,
    },
};
use troupe_tests::{
    client::Supervisor,
    events::{assert_whole, names},
    pair::Pair,
    runner::{Attempt, Runner},
    tree::Tree,
    watch::Watch,
    within,
};

use crate::{
    answers::{Answers, mail_of_log, mail_of_service},
    mirror::{Mirror, attempt, made_by, pick},
    request::{Answer, Request},
    script::{Asked, Call, Nth, Op, Setup, TurnReport, Who},
};

/// The runners that are attached.
const RUNNERS: [&str; 2] = ["r0", "r1"];

/// The spawned roles, as pairs of agent type and graph template. The last role does not exist.
const ROLES: [(&str, &str); 8] = [
    ("", ""),
    ("worker", ""),
    ("orchestrator", ""),
    ("explorer", ""),
    ("narrow", ""),
    ("", "orchestrator"),
    ("", "lead"),
    ("nobody", ""),
];

/// A role of the project whose children have fewer permissions than the role itself.
const NARROW: &str = "---\ndescription: Has workers read.\n\
    allow_list:\n  - \"*_agent\"\n  - send_input\n  - \"read_*\"\n\
    grant_list:\n  - \"read_*\"\n  - send_input\n\
    spawn_list:\n  - worker\n---\nYou have workers read.\n";

/// A graph template of the project that declares every edge. Spawns by its threads still wait for an operator.
const LEAD: &str =
    "[template]\nname = \"lead\"\nversion = \"1\"\ncapabilities = [\"edge_management_all\"]\n\nYou lead.\n";

/// Longer than any script takes, so that runners are lost only when the script says so.
const LEASE: Duration = Duration::from_secs(600);

/// Maximum number of attempts to read a consistent state.
const MAX_READS: usize = 1_000;

/// Maximum number of steps until a closed session has ended.
const MAX_CLOSE_STEPS: usize = 1_000;

/// A thread spawns a child of its own if the script's number for the parent is below this value. Otherwise the parent
/// is any open thread.
const OWN_CHILD: Nth = 192;

/// A close never selects the root if the script's number for the target is below this value.
const SPARES_ROOT: Nth = 240;

/// A running script.
pub struct Play {
    pair: Pair,
    tree: Tree,
    watch: Watch,
    mirror: Mirror,
    /// Watched events that are not folded yet.
    ahead: Vec<Event>,
    runners: BTreeMap<&'static str, Runner>,
    /// The last token that a response contained for each thread.
    tokens: BTreeMap<String, String>,
    /// The accepted requests of operators, each with the id of the object that it created.
    accepted: Vec<(Request, Option<String>)>,
    requests: u32,
}

impl Play {
    /// Starts a pair with two runners, and opens the session.
    pub async fn open(setup: &Setup) -> Self {
        let pair = Pair::with(|config| {
            config.limits = ServiceLimits::CEILING;
            config.lease = LEASE;
        })
        .await;
        pair.write_role("narrow", NARROW);
        let templates = Path::new(&pair.project()).join("docs/templates");
        fs::create_dir_all(&templates).unwrap();
        fs::write(templates.join("lead.md"), LEAD).unwrap();
        let mut runners = BTreeMap::new();
        for id in RUNNERS {
            runners.insert(id, Runner::attach(&pair, id).await);
        }
        let tree = pair.tree_with(setup.request()).await;
        let mut watch = tree.watch_after(0).await;
        let events = watch.up_to(tree.head().await).await;
        let mirror = Mirror::open(&tree.session, &events);
        Self {
            tokens: BTreeMap::from([(tree.root.clone(), tree.root_token.clone())]),
            pair,
            watch,
            mirror,
            ahead: Vec::new(),
            runners,
            tree,
            accepted: Vec::new(),
            requests: 0,
        }
    }

    /// Runs one step and checks the state of the service after it.
    pub async fn run_step(&mut self, op: &Op) {
        match op {
            Op::Ask(asked) => self.ask(asked).await,
            Op::Work(nth) => self.work(*nth).await,
            Op::Say { target, what } => self.say(*target, *what).await,
            Op::ComeBack { runner, without } => {
                let id = RUNNERS[usize::from(*runner) % RUNNERS.len()];
                self.come_back(id, *without).await;
                self.settle().await;
            }
            Op::Retry(nth) => self.retry(*nth).await,
            Op::Restart => self.restart().await,
        }
    }

    /// Reads the log and then all other state, and repeats until no event was recorded in between. Both then describe
    /// the same moment and must agree.
    async fn settle(&mut self) {
        for _ in 0..MAX_READS {
            let session = self.tree.now().await;
            let mut events = mem::take(&mut self.ahead);
            events.extend(self.watch.up_to(session.sequence).await);
            self.mirror.fold(&events);
            // A different mailbox each time.
            let ids = self.mirror.ids();
            let mailbox = ids[self.mirror.log.len() % ids.len()];
            let answers = Answers::of_service(&self.tree, session, mailbox).await;
            if self.tree.head().await == self.mirror.head() {
                answers.assert_equal(&Answers::of_log(&self.mirror.session, mailbox));
                return;
            }
        }
        panic!("events arrived during each of {MAX_READS} attempts to read the session");
    }
}

// ---- clients ----

impl Play {
    /// Makes concurrent calls. The log must agree with the responses: no effect of a rejected request, and exactly one
    /// effect of each accepted request, regardless of retries.
    async fn ask(&mut self, asked: &[Asked]) {
        let known = self.mirror.log.len();
        let mut requests = Vec::new();
        let mut calls = JoinSet::new();
        for Asked { by, call, twice } in asked {
            let Some(client) = self.client(*by) else { continue };
            let Some(request) = self.request(*by, *call) else {
                continue;
            };
            for _ in 0..=u8::from(*twice) {
                let (number, call) = (requests.len(), request.clone().make(client.clone()));
                calls.spawn(async move { (number, within("an answer", call).await) });
            }
            requests.push((*by, request));
        }
        let mut answers: Vec<Vec<Answer>> = vec![Vec::new(); requests.len()];
        for (number, answer) in calls.join_all().await {
            match answer {
                Ok(answer) => answers[number].push(answer),
                Err(status) => assert_refusal(&status),
            }
        }
        self.settle().await;

        let mut is_any_accepted = false;
        let mut made = BTreeSet::new();
        for ((by, request), answers) in requests.into_iter().zip(answers) {
            if answers.is_empty() {
                continue;
            }
            is_any_accepted = true;
            let ids: BTreeSet<&String> = answers.iter().filter_map(|answer| answer.made.as_ref()).collect();
            assert!(ids.len() <= 1, "one request created {ids:?}: {request:?}");
            let id = ids.first().map(|id| (*id).clone());
            for token in answers.iter().filter_map(|answer| answer.token.as_ref()) {
                self.tokens.insert(token.thread.clone(), token.text.clone());
            }
            if request.always_makes() {
                made.extend(id.clone());
            }
            if let Who::Operator = by {
                self.accepted.push((request, id));
            }
        }
        let caused = self.mirror.by_clients_since(known);
        let logged: Vec<String> = caused.iter().filter_map(|event| made_by(event)).collect();
        assert_eq!(
            logged.len(),
            made.len(),
            "{logged:?} in the log, {made:?} in the answers"
        );
        assert_eq!(logged.into_iter().collect::<BTreeSet<_>>(), made);
        if !is_any_accepted {
            let is_verdict = |event: &&&Event| matches!(event.kind, Some(Kind::SpawnFailed(_)));
            let verdicts = caused.iter().filter(is_verdict).count();
            assert_eq!(
                verdicts,
                caused.len(),
                "rejected requests had effects: {:?}",
                names(caused)
            );
        }
    }

    /// Repeats an accepted request. It must be accepted again, return the same object, and have no effect.
    async fn retry(&mut self, nth: Nth) {
        let numbers: Vec<usize> = (0..self.accepted.len()).collect();
        let Some(number) = pick(&numbers, nth) else { return };
        let (request, made) = self.accepted[number].clone();
        let known = self.mirror.log.len();
        let answer = within("the answer to a retry", request.clone().make(self.tree.client())).await;
        let answer = answer.unwrap_or_else(|status| panic!("a retry of {request:?} was refused: {status:?}"));
        if let (Some(made), Some(again)) = (&made, &answer.made) {
            assert_eq!(again, made, "a retry of {request:?}");
        }
        self.settle().await;
        let caused = self.mirror.by_clients_since(known);
        assert!(
            caused.is_empty(),
            "a retry of {request:?} had effects: {:?}",
            names(caused)
        );
    }

    /// Returns the caller's client; `None` if no response contained a token for the thread.
    fn client(&self, by: Who) -> Option<Supervisor> {
        match by {
            Who::Operator => Some(self.tree.client()),
            Who::Thread(nth) => {
                let id = self.mirror.nth(nth).id.to_string();
                self.tokens.get(&id).map(|token| self.pair.with_token(token))
            }
        }
    }

    /// Returns the request of a call in the current state; `None` if the call needs an object that does not exist.
    fn request(&mut self, by: Who, call: Call) -> Option<Request> {
        self.requests += 1;
        let request_id = format!("request {}", self.requests);
        let session_id = self.tree.session.clone();
        let id = |nth: Nth| self.mirror.nth(nth).id.to_string();
        let text = || Some(String::from("the task"));
        Some(match call {
            Call::Spawn {
                parent,
                role,
                alias,
                queue,
                wakes,
                turns,
            } => {
                let (agent_type, role_template) = ROLES[usize::from(role) % ROLES.len()];
                let wake_policy = if wakes { WakePolicy::Always } else { WakePolicy::None };
                Request::Spawn(Box::new(SpawnAgentRequest {
                    request_id,
                    session_id,
                    parent_thread_id: self.parent(by, parent)?,
                    message: text(),
                    agent_type: agent_type.to_owned(),
                    role_template: role_template.to_owned(),
                    alias: if alias > 0 {
                        format!("Alias-{alias}")
                    } else {
                        String::new()
                    },
                    on_limit: on_limit(queue),
                    wake_policy: wake_policy.into(),
                    budget: (turns > 0).then(|| budget(turns)),
                    return_token: true,
                    ..SpawnAgentRequest::default()
                }))
            }
            Call::Send { target, urgency, queue } => Request::Send(SendInputRequest {
                request_id,
                session_id,
                thread_id: id(target),
                message: text(),
                steer: urgency == Urgency::Steer,
                interrupt: urgency == Urgency::Interrupt,
                on_limit: on_limit(queue),
                ..SendInputRequest::default()
            }),
            Call::Interrupt { target, only_this } => Request::Interrupt(InterruptAgentRequest {
                request_id,
                session_id,
                thread_id: id(target),
                only_this,
                ..InterruptAgentRequest::default()
            }),
            Call::Close(target) => {
                let spared = |thread: &Thread| target < SPARES_ROOT && thread.spawned.parent.is_none();
                let thread = self.mirror.nth_of(target, |thread| !spared(thread))?;
                Request::Close(CloseAgentRequest {
                    request_id,
                    session_id,
                    thread_id: thread.id.to_string(),
                    ..CloseAgentRequest::default()
                })
            }
            Call::Resume(target) => {
                let is_closed = |thread: &Thread| thread.status.kind() == StatusKind::Shutdown;
                Request::Resume(ResumeAgentRequest {
                    request_id,
                    session_id,
                    thread_id: self.mirror.nth_of(target, is_closed)?.id.to_string(),
                    ..ResumeAgentRequest::default()
                })
            }
            Call::Note { target, blank } => Request::Note(SetThreadNoteRequest {
                request_id: request_id.clone(),
                session_id,
                thread_id: id(target),
                thread_note: if blank { String::from(" ") } else { request_id },
            }),
            Call::Connect { from, to, one_way } => Request::Connect(CreateEdgeRequest {
                request_id,
                session_id,
                from_thread_id: id(from),
                to_thread_id: id(to),
                one_way,
                ..CreateEdgeRequest::default()
            }),
            Call::Disconnect(edge) => {
                let edges = graph::edges_within(&self.mirror.session, self.mirror.session.root_id()?);
                let ids: Vec<_> = edges.iter().map(|edge| edge.id).collect();
                Request::Disconnect(DeleteEdgeRequest {
                    request_id,
                    session_id,
                    edge_id: pick(&ids, edge)?.to_string(),
                })
            }
            Call::HandOff { from, to } => Request::HandOff(SendHandoffRequest {
                request_id,
                session_id,
                from_thread_id: id(from),
                to_thread_id: id(to),
                message: String::from("over to you"),
                ..SendHandoffRequest::default()
            }),
            Call::Acknowledge { target, letter } => {
                let thread = self.mirror.nth(target);
                let letters: Vec<u64> = thread.mail.letters().map(|letter| letter.sequence.get()).collect();
                Request::Acknowledge(AcknowledgeMailboxRequest {
                    request_id,
                    session_id,
                    thread_id: thread.id.to_string(),
                    up_to_sequence: pick(&letters, letter).unwrap_or(self.mirror.head()),
                })
            }
            Call::Budget { target, turns } => Request::Budget(UpdateThreadBudgetRequest {
                request_id,
                session_id,
                thread_id: id(target),
                budget: Some(budget(turns)),
            }),
            Call::Decide { approval, grant } => {
                let ids: Vec<_> = self.mirror.session.approvals.keys().copied().collect();
                Request::Decide(ResolveApprovalRequest {
                    request_id,
                    session_id,
                    approval_id: pick(&ids, approval)?.to_string(),
                    grant,
                    ..ResolveApprovalRequest::default()
                })
            }
            Call::Pause(paused) => Request::Update(UpdateSessionRequest {
                request_id,
                session_id,
                paused: Some(paused),
                ..UpdateSessionRequest::default()
            }),
            Call::MoreSlots => Request::Update(UpdateSessionRequest {
                request_id,
                session_id,
                limits: Some(Limits {
                    max_threads: Some(self.mirror.session.settings.limits.max_threads + 1),
                    ..Limits::default()
                }),
                ..UpdateSessionRequest::default()
            }),
        })
    }

    /// Returns the parent of a spawn: in most cases the calling thread itself, otherwise an open thread. `None` if no
    /// thread is open.
    fn parent(&self, by: Who, parent: Nth) -> Option<String> {
        let own = match by {
            Who::Thread(own) if parent < OWN_CHILD => Some(self.mirror.nth(own)),
            Who::Thread(_) | Who::Operator => self.mirror.nth_of(parent, |thread| thread.status.kind().is_open()),
        };
        own.map(|thread| thread.id.to_string())
    }
}

fn on_limit(queue: bool) -> i32 {
    let on_limit = if queue { OnLimit::Queue } else { OnLimit::Refuse };
    on_limit.into()
}

fn budget(turns: u32) -> Budget {
    Budget {
        turns,
        ..Budget::default()
    }
}

/// Checks that a failed call was rejected with one of the API's reasons.
#[track_caller]
fn assert_refusal(status: &Status) {
    let is_refusal = matches!(
        status.code(),
        Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::ResourceExhausted
            | Code::FailedPrecondition
            | Code::Unauthenticated
    );
    assert!(is_refusal && reason_of(status).is_some(), "{status:?}");
}

// ---- runners ----

impl Play {
    /// Lets the runner perform the pending effect of a thread.
    async fn work(&mut self, nth: Nth) {
        let state = &self.mirror.session;
        let waits_for_runner = |thread: &Thread| {
            let pending = pending_effect(state, thread.id);
            matches!(
                pending,
                Some(
                    PendingEffect::Start { .. }
                        | PendingEffect::Interrupt { .. }
                        | PendingEffect::Steer { .. }
                        | PendingEffect::Stop { .. }
                )
            )
        };
        if let Some(id) = self.mirror.nth_of(nth, waits_for_runner).map(|thread| thread.id) {
            self.discharge(id).await;
            self.settle().await;
        }
    }

    /// Lets the thread's runner perform the pending effect. Returns `false` if no effect of a runner is pending.
    async fn discharge(&mut self, id: ThreadId) -> bool {
        let Some(pending) = pending_effect(&self.mirror.session, id) else {
            return false;
        };
        let thread = self.mirror.session.thread(id).unwrap();
        let attempt = attempt(thread);
        let (runner, report) = match pending {
            PendingEffect::Start { runner, turn } => {
                (runner, Report::TurnStarted(TurnStartedReport { turn: turn.get() }))
            }
            PendingEffect::Interrupt { runner, .. } => (runner, ended(&attempt, TurnOutcome::Interrupted)),
            PendingEffect::Steer { runner, .. } => (runner, delivered(thread)),
            PendingEffect::Stop { runner, .. } => (runner, stopped()),
            PendingEffect::Turn { .. } | PendingEffect::Close => return false,
        };
        let runner = self.runners.get_mut(runner.as_str()).unwrap();
        runner.report(&attempt, report).await;
        true
    }

    /// Lets the runner of a running turn send a report about the turn.
    async fn say(&mut self, nth: Nth, what: TurnReport) {
        let has_turn = |thread: &Thread| {
            let is_under_way = thread.status.kind().is_active() && !thread.turn.awaits_dispatch();
            is_under_way && thread.holder().is_some()
        };
        let Some(thread) = self.mirror.nth_of(nth, has_turn).cloned() else {
            return;
        };
        let known = self.mirror.log.len();
        let attempt = attempt(&thread);
        let runner = self.runners.get_mut(thread.holder().unwrap().as_str()).unwrap();
        let turn = attempt.turn;
        let report = match what {
            TurnReport::Completed => ended(&attempt, TurnOutcome::Completed),
            TurnReport::Errored => ended(&attempt, TurnOutcome::Errored),
            TurnReport::Interrupted => ended(&attempt, TurnOutcome::Interrupted),
            TurnReport::Delivered => delivered(&thread),
            TurnReport::Stopped => stopped(),
            TurnReport::Artifact => Report::Artifact(ArtifactReport {
                turn,
                name: String::from("notes.md"),
                kind: String::from("document"),
                media_type: String::from("text/markdown"),
                data: "notes".into(),
                append: false,
                more: false,
            }),
            TurnReport::Gap => Report::PolicyGap(PolicyGapReport {
                gap: String::from("web_search cannot be denied"),
            }),
            TurnReport::Again => {
                let report = ended(&attempt, TurnOutcome::Completed);
                runner.report_as(&attempt, thread.last_report.get(), report).await;
                return self.assert_void(known).await;
            }
            TurnReport::OtherAttempt => {
                let other = Attempt {
                    generation: attempt.generation + 1,
                    ..attempt.clone()
                };
                // The harness counts reports of real attempts only, so this number is explicit.
                runner
                    .report_as(&other, 1, ended(&attempt, TurnOutcome::Completed))
                    .await;
                return self.assert_void(known).await;
            }
        };
        runner.report(&attempt, report).await;
        self.settle().await;
    }

    /// Checks that no report has appended an event after the first `known` events.
    async fn assert_void(&mut self, known: usize) {
        self.settle().await;
        let reported = self.mirror.by_runners_since(known);
        assert!(reported.is_empty(), "a void report had effects: {:?}", names(reported));
    }

    /// Breaks a runner's stream and attaches the runner again, with all of its attempts or without one of them.
    async fn come_back(&mut self, id: &'static str, without: Option<Nth>) {
        let mut held = self.mirror.held_by(id);
        if let Some(lost) = without
            && !held.is_empty()
        {
            held.remove(usize::from(lost) % held.len());
        }
        let runner = self.runners.remove(id).unwrap();
        let runner = runner.come_back(&self.pair, &held).await;
        self.runners.insert(id, runner);
    }
}

/// Returns the report that the running turn received the oldest pending input.
fn delivered(thread: &Thread) -> Report {
    let oldest = thread.pending_inputs.front().map(|input| input.number);
    Report::InputDelivered(InputDeliveredReport {
        number: oldest.unwrap_or(thread.last_input).get(),
        turn: thread.turn.number().get(),
    })
}

fn stopped() -> Report {
    Report::Stopped(ThreadStoppedReport {
        detail: String::from("exit status 0"),
        killed: false,
    })
}

/// Returns the end of an attempt's turn, with the usage of the attempt so far.
fn ended(attempt: &Attempt, outcome: TurnOutcome) -> Report {
    Report::TurnEnded(TurnEndedReport {
        turn: attempt.turn,
        outcome: outcome.into(),
        message: format!("turn {}", attempt.turn),
        usage: Some(Usage {
            input_tokens: 10 * u64::from(attempt.turn),
            ..Usage::default()
        }),
        ..TurnEndedReport::default()
    })
}

// ---- the service ----

impl Play {
    /// Restarts both services over the same files. The log must stay the same, and no event by a client may follow the
    /// events from before the restart.
    async fn restart(&mut self) {
        self.pair.restart().await;
        self.tree = self.tree.by(self.pair.operator());
        for id in RUNNERS {
            self.come_back(id, None).await;
        }
        self.watch = self.tree.watch_after(0).await;
        let known = self.mirror.log.len();
        let again = self.watch.up_to(known as u64).await;
        assert!(again == self.mirror.log, "a restart changed the log");
        self.settle().await;
        let caused = self.mirror.by_clients_since(known);
        assert!(caused.is_empty(), "a restart had effects: {:?}", names(caused));
        self.assert_mailboxes().await;
    }

    /// Closes the session and checks that all threads are SHUTDOWN. The invariants check that parents close after their
    /// children.
    pub async fn close(mut self) {
        let request = CloseSessionRequest {
            session_id: self.tree.session.clone(),
            ..CloseSessionRequest::default()
        };
        let answer = within("the answer to a close", self.tree.client().close_session(request)).await;
        answer.unwrap();
        for _ in 0..MAX_CLOSE_STEPS {
            self.settle().await;
            if self.mirror.session.closed {
                return self.assert_closed().await;
            }
            let mut had_work = false;
            for id in self.mirror.ids() {
                had_work |= self.discharge(id).await;
            }
            if !had_work {
                let event = self.watch.event().await;
                self.ahead.push(event);
            }
        }
        panic!("the session is not closed after {MAX_CLOSE_STEPS} steps");
    }

    async fn assert_closed(self) {
        let state = &self.mirror.session;
        assert_eq!(state.open_count(), 0);
        assert!(state.holding().is_empty());
        assert_eq!(state.count(StatusKind::Shutdown) as usize, state.total());
        assert_whole(&self.mirror.log);
        let is_end = |event: &&Event| matches!(event.kind, Some(Kind::SessionClosed(_)));
        assert_eq!(self.mirror.log.iter().filter(is_end).count(), 1);
        assert!(
            self.tree.log().await == self.mirror.log,
            "a second watch received a different log"
        );
        self.assert_mailboxes().await;
    }

    /// Checks every mailbox. Mail that was read while a new event was recorded is not checked.
    async fn assert_mailboxes(&self) {
        for id in self.mirror.ids() {
            let mail = mail_of_service(&self.tree, id).await;
            if self.tree.head().await == self.mirror.head() {
                assert_eq!(mail, mail_of_log(&self.mirror.session, id), "the mailbox of {id}");
            }
        }
    }
}
