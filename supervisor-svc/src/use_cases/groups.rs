//! Runs the groups of sessions: spawns the items of each group as far as its concurrency allows, and ends each complete
//! group. All pending work is derived from the state, so a restart continues from the state.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{Duration, UNIX_EPOCH},
};

use bytes::Bytes;
use opentelemetry::KeyValue;
use serde_json::json;
use supervisor_log::{
    codec::group::{TABLE_KIND, TABLE_MEDIA_TYPE, TABLE_NAME},
    store::{Content, EventStore},
};
use svc_kit::{trace_context::TraceParent, traces::WorkSpan};
use tokio::{sync::OnceCell, time::Instant};
use tonic::{Code, Status};
use troupe_proto::{fault::reason_of, reason::Reason, store::v1::GroupPlan, supervisor::v1::SpawnAgentRequest};

use super::{
    group_plan,
    spawn::{SpawnArguments, SpawnCaller, Spawner},
};
use crate::{
    clock::Clock,
    convert::group::last_message,
    domain::{
        command::Command,
        content::truncate,
        event::Artifact,
        group::{GroupOutcome, ItemRef},
        ids::{GroupId, ThreadId, Turn},
        principal::{Actor, Caller},
        settings::OnLimit,
        state::{
            group::{Group, GroupStage, ItemState},
            session::Session,
        },
    },
    engine::{
        Begun, Failure, Handle, Origin,
        feed::{Active, Change, Commands, Subscriber, Subscription, Waker},
        read_message,
    },
    results::ResultReader,
};

/// Maximum number of spawns of a session in flight at a time.
const SPAWNS_IN_FLIGHT: usize = 32;
/// Delay before a spawn that failed for a transient reason is tried again.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Maximum size of the results in a table, in bytes. Further results are named by their digests.
const TABLE_RESULTS_BYTES: u64 = 8 * 1_024 * 1_024;
/// Maximum length of a message in a table, in bytes.
const TABLE_MESSAGE_BYTES: usize = 256;

/// Reads the arguments of a spawn from its request.
pub type ReadArguments = fn(ThreadId, SpawnAgentRequest) -> Result<SpawnArguments, Status>;

/// The dependencies of a [`GroupRunner`]. They are set after the sessions exist.
pub struct GroupServices {
    /// Spawns the items' threads.
    pub spawner: Spawner,
    /// Reads the arguments of a spawn.
    pub read_arguments: ReadArguments,
    /// The store of the sessions.
    pub store: Arc<dyn EventStore>,
    /// Source of wall-clock time and new ids.
    pub clock: Clock,
}

/// Runs the groups of all sessions.
#[derive(Clone, Default)]
pub struct GroupRunner {
    services: Arc<RwLock<Option<Arc<GroupServices>>>>,
}

impl GroupRunner {
    /// Sets the services. No group runs before this call.
    pub fn start(&self, services: GroupServices) {
        *self.services.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(services));
    }

    /// Releases the services, which refer to the sessions. No further item starts.
    pub fn stop(&self) {
        *self.services.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Subscriber for GroupRunner {
    fn subscribe(&self, session: &Active<'_>, _: &mut Commands) -> Option<Box<dyn Subscription>> {
        let mut groups = SessionGroups {
            services: Arc::clone(&self.services),
            waker: Waker::of(session.handle),
            plans: HashMap::new(),
            starting: HashSet::new(),
            ending: HashSet::new(),
            delayed: None,
            ended: Arc::default(),
        };
        groups.run(session);
        Some(Box::new(groups))
    }
}

/// The groups of one session.
struct SessionGroups {
    services: Arc<RwLock<Option<Arc<GroupServices>>>>,
    waker: Waker,
    /// The plans of open groups. Read once for each group.
    plans: HashMap<GroupId, Arc<OnceCell<GroupPlan>>>,
    /// Items with a spawn in flight or waiting for a retry.
    starting: HashSet<(GroupId, u32)>,
    ending: HashSet<GroupId>,
    /// The items to try again, and the time of the next try.
    delayed: Option<(Instant, Vec<(GroupId, u32)>)>,
    /// The results of ended tasks. Bounded by the tasks in flight.
    ended: Arc<Mutex<Vec<TaskEnd>>>,
}

#[derive(Clone, Copy)]
enum Task {
    /// Spawns the thread of an item.
    Start(u32),
    /// Ends the group.
    End,
}

enum TaskEnd {
    Started((GroupId, u32)),
    Delayed((GroupId, u32)),
    Ended(GroupId),
}

impl Subscription for SessionGroups {
    fn committed(&mut self, change: &Change<'_>, _: &mut Commands) {
        self.run(&change.after);
    }

    fn reconcile(&mut self, session: &Active<'_>, _: &mut Commands) {
        let now = Instant::now();
        if let Some((_, items)) = self.delayed.take_if(|(at, _)| *at <= now) {
            for item in items {
                self.starting.remove(&item);
            }
        }
        self.run(session);
    }

    fn woken(&mut self, session: &Active<'_>, _: &mut Commands) {
        let ended = std::mem::take(&mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner));
        for end in ended {
            match end {
                TaskEnd::Started(item) => {
                    self.starting.remove(&item);
                }
                TaskEnd::Delayed(item) => {
                    let retry_at = Instant::now() + RETRY_DELAY;
                    self.delayed.get_or_insert_with(|| (retry_at, Vec::new())).1.push(item);
                }
                TaskEnd::Ended(group) => {
                    self.ending.remove(&group);
                }
            }
        }
        self.run(session);
    }

    fn wake_at(&self) -> Option<Instant> {
        self.delayed.as_ref().map(|(at, _)| *at)
    }

    fn is_busy(&self) -> bool {
        !self.starting.is_empty() || !self.ending.is_empty()
    }
}

impl SessionGroups {
    /// Starts the tasks that are due.
    fn run(&mut self, active: &Active<'_>) {
        let session = active.session;
        if session.open_groups().next().is_none() {
            self.plans.clear();
            return;
        }
        let services = self.services.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(services) = services else { return };
        for group in session.open_groups() {
            let id = group.spec.id;
            if group.is_complete() && self.ending.insert(id) {
                self.begin(Task::End, active, &services, group);
            }
            let due: Vec<u32> = group.startable().filter(|_| !session.paused).collect();
            for index in due {
                if self.starting.len() >= SPAWNS_IN_FLIGHT {
                    return;
                }
                if self.starting.insert((id, index)) {
                    self.begin(Task::Start(index), active, &services, group);
                }
            }
        }
    }

    /// Starts a task, which wakes the session when it ends.
    fn begin(&mut self, task: Task, active: &Active<'_>, services: &Arc<GroupServices>, group: &Arc<Group>) {
        let job = Job {
            services: Arc::clone(services),
            handle: active.handle.clone(),
            session: Arc::clone(active.session),
            group: Arc::clone(group),
            plan: Arc::clone(self.plans.entry(group.spec.id).or_default()),
        };
        let (ended, waker) = (Arc::clone(&self.ended), self.waker.clone());
        tokio::spawn(async move {
            let end = job.run(task).await;
            ended.lock().unwrap_or_else(PoisonError::into_inner).push(end);
            waker.wake().await;
            // The job keeps the session in memory until this point.
            drop(job);
        });
    }
}

/// One task for a group.
struct Job {
    services: Arc<GroupServices>,
    handle: Handle,
    session: Arc<Session>,
    group: Arc<Group>,
    plan: Arc<OnceCell<GroupPlan>>,
}

impl Job {
    async fn run(&self, task: Task) -> TaskEnd {
        let id = self.group.spec.id;
        match task {
            Task::Start(index) => {
                if self.start(index).await {
                    TaskEnd::Started((id, index))
                } else {
                    TaskEnd::Delayed((id, index))
                }
            }
            Task::End => {
                if let Err(failure) = self.end().await {
                    tracing::warn!(group = %id, %failure, "group not ended");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                TaskEnd::Ended(id)
            }
        }
    }

    /// Spawns the thread of an item. Returns false if the spawn must be tried again later.
    async fn start(&self, index: u32) -> bool {
        let item = ItemRef {
            group: self.group.spec.id,
            item: index,
        };
        let Err(status) = self.spawn(item).await else {
            return true;
        };
        if is_transient(&status) {
            return false;
        }
        // The state changed in the meantime: another attempt runs, or the group ends.
        if reason_of(&status) == Some(Reason::IllegalTransition) {
            return true;
        }
        let command = Command::FailItem {
            item,
            reason: status.message().to_owned(),
        };
        let failed = self.handle.execute(command, Origin::service(), None, Vec::new()).await;
        failed.is_ok()
    }

    async fn spawn(&self, item: ItemRef) -> Result<(), Status> {
        let services = &self.services;
        let plan = self.plan().await?;
        let request = group_plan::request(plan, item.item).map_err(Status::invalid_argument)?;
        let mut arguments = Box::new((services.read_arguments)(self.group.parent, request)?);
        arguments.on_limit = OnLimit::Queue;
        arguments.item = Some(item);
        let caller = caller(&self.session, &self.group)?;
        let trace = TraceParent::parse(&plan.traceparent).unwrap_or_else(TraceParent::root);
        let origin = Origin {
            actor: caller.actor(),
            traceparent: Some(Arc::from(trace.as_str())),
            ..Origin::service()
        };
        let Begun::New(in_flight) = self.handle.begin(None).await? else {
            return Ok(());
        };
        let caller = SpawnCaller {
            caller: &caller,
            deadline: None,
            trace: &trace,
            origin,
        };
        services.spawner.run(&self.handle, in_flight, caller, arguments).await?;
        Ok(())
    }

    async fn plan(&self) -> Result<&GroupPlan, Failure> {
        let read = || read_message(self.services.store.as_ref(), self.session.id, &self.group.spec.plan);
        self.plan.get_or_try_init(read).await
    }

    /// Ends the group with the table of its results.
    async fn end(&self) -> Result<(), Failure> {
        let table = self.table().await?;
        let content = Content::new(Bytes::from(table));
        let artifact = Artifact {
            id: self.services.clock.new_id(),
            name: TABLE_NAME.to_owned(),
            kind: TABLE_KIND.to_owned(),
            media_type: TABLE_MEDIA_TYPE.to_owned(),
            content: content.reference(String::new()),
            turn: Turn::ZERO,
        };
        let command = Command::EndGroup {
            group: self.group.spec.id,
            table: Box::new(artifact),
        };
        self.handle
            .execute(command, Origin::service(), None, vec![content])
            .await?;
        self.record_span(self.plan().await?);
        Ok(())
    }

    /// Records the group as a span from its creation until now, following OpenTelemetry's conventions for generative
    /// AI.
    fn record_span(&self, plan: &GroupPlan) {
        let group = &self.group;
        let name = &group.spec.name;
        let mut attributes = vec![
            KeyValue::new("gen_ai.operation.name", "invoke_workflow"),
            KeyValue::new("gen_ai.conversation.id", self.session.id.to_string()),
            KeyValue::new("troupe.group.id", group.spec.id.to_string()),
        ];
        for state in [ItemState::Succeeded, ItemState::Failed, ItemState::Cancelled] {
            let key = format!("troupe.group.{}", state_name(state));
            attributes.push(KeyValue::new(key, i64::from(group.count_of(state))));
        }
        let mut span = String::from("invoke_workflow");
        if !name.is_empty() {
            attributes.push(KeyValue::new("gen_ai.workflow.name", name.clone()));
            span = format!("{span} {name}");
        }
        let failure = match &group.stage {
            GroupStage::Ending(GroupOutcome::Failed, _) => Some("the group failed"),
            GroupStage::Ending(GroupOutcome::Succeeded | GroupOutcome::Cancelled, _)
            | GroupStage::AwaitingApproval(_)
            | GroupStage::Running
            | GroupStage::Ended(..) => None,
        };
        if failure.is_some() {
            attributes.push(KeyValue::new("error.type", "group"));
        }
        let asked = TraceParent::parse(&plan.traceparent);
        let began = UNIX_EPOCH + Duration::from_millis(group.created.get());
        WorkSpan::record(span, attributes, asked.as_ref(), began, failure);
    }

    /// Returns the results of all items as a JSON array.
    async fn table(&self) -> Result<String, Failure> {
        let plan = self.plan().await?;
        let mut reader = ResultReader::new(self.services.store.as_ref(), self.session.id, TABLE_RESULTS_BYTES);
        let mut rows = Vec::new();
        for (index, item) in self.group.items.iter().enumerate() {
            let thread = item.thread.and_then(|thread| self.session.thread(thread));
            let mut row = json!({
                "key": plan.items.get(index).map(|item| item.key.as_str()),
                "state": state_name(item.state),
                "attempts": item.attempts,
            });
            if let Some(thread) = thread {
                row["thread_id"] = thread.id.to_string().into();
                let usage = thread.total_usage();
                row["tokens"] = usage.tokens().into();
                row["cost_micros"] = usage.cost.into();
                if let Some(message) = last_message(&thread.status) {
                    row["message"] = truncate(message, TABLE_MESSAGE_BYTES).into();
                }
                if let Some(result) = &thread.result {
                    let result = reader.read(result).await?;
                    row["result"] = serde_json::from_str(&result.document_json)
                        .unwrap_or_else(|_| json!({"sha256": result.content.unwrap_or_default().digest}));
                }
            }
            if !item.reason.is_empty() {
                row["error"] = item.reason.as_ref().into();
            }
            rows.push(row);
        }
        Ok(json!(rows).to_string())
    }
}

const fn state_name(state: ItemState) -> &'static str {
    match state {
        ItemState::Pending => "pending",
        ItemState::Running => "running",
        ItemState::Succeeded => "succeeded",
        ItemState::Failed => "failed",
        ItemState::Cancelled => "cancelled",
    }
}

/// Returns the caller of the spawns: the group's creator, with its present permissions.
fn caller(session: &Session, group: &Group) -> Result<Caller, Status> {
    match &group.spec.creator {
        Actor::Operator(name) => Ok(Caller::Operator { name: name.clone() }),
        Actor::Thread(id) => {
            let thread = session.thread(*id);
            let thread = thread.ok_or_else(|| Status::failed_precondition("the group's creator does not exist"))?;
            Ok(Caller::Thread {
                id: *id,
                generation: thread.generation,
            })
        }
        Actor::Runner(_) | Actor::Service => Err(Status::failed_precondition("the group has no creator")),
    }
}

/// Returns whether a spawn may succeed later without a change of the request.
fn is_transient(status: &Status) -> bool {
    let is_busy = matches!(
        reason_of(status),
        Some(Reason::Overloaded | Reason::RateLimited | Reason::OpenLimit | Reason::SessionPaused)
    );
    is_busy || matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded)
}
