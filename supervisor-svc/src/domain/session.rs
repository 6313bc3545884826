//! A session as its events made it. Cheap to clone: the maps share their nodes, so that a snapshot, a working copy and the
//! published state cost what differs between them.
//!
//! Invariant: the indices (`holding`, `queue`, `starting`, `waking`, `order`, `aliases`, `open`, `going_on`, `budgeted`,
//! `spent`, `idle_orchestrators`) are functions of `threads`; `Session::put` is the only place that changes either. `edges_at`
//! is a function of `edges`; `Session::connect` and `Session::disconnect` alone change them. `pending` and `moot` are
//! functions of `approvals` and `threads`, kept where approvals are folded. So a snapshot does not keep any of them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use imbl::{OrdMap, OrdSet, Vector};
use tool_policy::Policy;

use super::{
    approval::Approval,
    authorize, budget,
    event::{ConditionKind, Edge, Fence, SettingsChange},
    ids::{ApprovalId, EdgeId, Sequence, SessionId, ThreadId},
    orchestration,
    settings::{Budget, Orchestration, Settings, SlotRelease, Usage},
    status::StatusKind,
    thread::{LatestTurn, Thread},
    time::UnixMillis,
    waiting::Waits,
};

/// One root thread and the tree under it.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// What binds it.
    pub settings: Arc<Settings>,
    /// The tools that no thread exceeds.
    pub ceiling: Policy,
    /// The tools of which no call needs an operator.
    pub approval_gate: Policy,
    /// Whether turns and spawns are held back.
    pub paused: bool,
    /// Whether its root is closed for good.
    pub closed: bool,
    /// When it was opened.
    pub created: UnixMillis,
    /// When its last event was recorded.
    pub updated: UnixMillis,
    /// The sequence of its last event.
    pub sequence: Sequence,
    /// The edges that were created, all between open threads. One between each parent and child is there without an event.
    pub edges: OrdMap<EdgeId, Arc<Edge>>,
    /// What waits for an operator, and what was decided lately.
    pub approvals: OrdMap<ApprovalId, Arc<Approval>>,
    /// The undecided ones, by deadline.
    pub(super) pending: OrdSet<(UnixMillis, ApprovalId)>,
    /// Those of them whose thread is being closed or is closed. Empty after every append: they are decided in the same one.
    pub(super) moot: OrdSet<ApprovalId>,
    /// The event that set the present receivers of notifications: one that nothing was sent to yet begins after it.
    pub webhooks_since: Sequence,
    /// Who waits for whom at this moment. Volatile: in no log, and no part of what makes two states equal.
    pub waits: Waits,
    pub(super) root: Option<ThreadId>,
    edges_at: OrdMap<ThreadId, OrdSet<EdgeId>>,
    threads: OrdMap<ThreadId, Arc<Thread>>,
    order: OrdMap<Sequence, ThreadId>,
    holding: OrdSet<ThreadId>,
    queue: OrdMap<Sequence, ThreadId>,
    starting: OrdSet<ThreadId>,
    waking: OrdMap<Sequence, ThreadId>,
    fences: OrdSet<ThreadId>,
    going_on: OrdMap<Sequence, ThreadId>,
    budgeted: OrdSet<ThreadId>,
    spent: OrdSet<ThreadId>,
    idle_orchestrators: OrdSet<ThreadId>,
    aliases: OrdMap<String, ThreadId>,
    counts: OrdMap<StatusKind, u32>,
}

impl Session {
    pub(super) fn new(id: SessionId, settings: Settings, created: UnixMillis) -> Self {
        let ceiling = settings
            .tool_ceiling
            .clone()
            .and_then(|layer| Policy::compile(vec![layer]).ok())
            .unwrap_or_else(Policy::unrestricted);
        // Both were checked when the session was opened.
        let approval_gate =
            authorize::approval_gate(&settings.approve_tools).unwrap_or_else(|_| Policy::unrestricted());
        Self {
            id,
            settings: Arc::new(settings),
            ceiling,
            approval_gate,
            paused: false,
            closed: false,
            created,
            updated: created,
            sequence: Sequence::ZERO,
            edges: OrdMap::new(),
            approvals: OrdMap::new(),
            pending: OrdSet::new(),
            moot: OrdSet::new(),
            webhooks_since: Sequence::ZERO,
            waits: Waits::default(),
            root: None,
            edges_at: OrdMap::new(),
            threads: OrdMap::new(),
            order: OrdMap::new(),
            holding: OrdSet::new(),
            queue: OrdMap::new(),
            starting: OrdSet::new(),
            waking: OrdMap::new(),
            fences: OrdSet::new(),
            going_on: OrdMap::new(),
            budgeted: OrdSet::new(),
            spent: OrdSet::new(),
            idle_orchestrators: OrdSet::new(),
            aliases: OrdMap::new(),
            counts: OrdMap::new(),
        }
    }

    /// A session with its threads as a snapshot keeps them: in the order of their spawning, without their links to children,
    /// which follow from the links to parents. What else differs from a new session's is for the caller to set.
    pub(crate) fn restore(id: SessionId, settings: Settings, created: UnixMillis, threads: Vec<Thread>) -> Self {
        let mut session = Self::new(id, settings, created);
        let mut below: BTreeMap<ThreadId, (Vector<ThreadId>, u32)> = BTreeMap::new();
        for thread in &threads {
            if let Some(parent) = thread.spawned.parent {
                let (children, open) = below.entry(parent).or_default();
                children.push_back(thread.id);
                *open += u32::from(thread.status.kind().is_open());
            }
        }
        for mut thread in threads {
            (thread.children, thread.open_children) = below.remove(&thread.id).unwrap_or_default();
            if thread.spawned.parent.is_none() {
                session.root = Some(thread.id);
            }
            session.put(thread);
        }
        session
    }

    /// The root's id. A session that was opened has one: both events are one append.
    #[must_use]
    pub const fn root_id(&self) -> Option<ThreadId> {
        self.root
    }

    /// A thread by its id.
    #[must_use]
    pub fn thread(&self, id: ThreadId) -> Option<&Arc<Thread>> {
        self.threads.get(&id)
    }

    /// A thread by its alias, case-insensitive.
    #[must_use]
    pub fn thread_by_alias(&self, alias: &str) -> Option<ThreadId> {
        self.aliases.get(&alias.to_lowercase()).copied()
    }

    /// Every thread in spawn order, so parents come before children.
    pub fn in_spawn_order(&self) -> impl DoubleEndedIterator<Item = &Arc<Thread>> {
        self.order.values().filter_map(|id| self.threads.get(id))
    }

    /// How many threads the session ever had.
    #[must_use]
    pub fn total(&self) -> usize {
        self.threads.len()
    }

    /// How many threads have a status.
    #[must_use]
    pub fn count(&self, kind: StatusKind) -> u32 {
        self.counts.get(&kind).copied().unwrap_or_default()
    }

    /// How many threads are open, the root included.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.total() - self.count(StatusKind::Shutdown) as usize
    }

    /// The threads that hold a slot.
    #[must_use]
    pub fn holding(&self) -> &OrdSet<ThreadId> {
        &self.holding
    }

    /// The threads that wait for a slot, first come, first served.
    pub fn queued(&self) -> impl Iterator<Item = ThreadId> {
        self.queue.values().copied()
    }

    /// A thread's place in the queue, counted from 1.
    #[must_use]
    pub fn queue_position(&self, id: ThreadId) -> Option<u32> {
        let place = self.queued().position(|queued| queued == id)?;
        u32::try_from(place + 1).ok()
    }

    /// The threads in PENDING_INIT: a runner or a turn is owed to them.
    pub fn starting(&self) -> impl Iterator<Item = ThreadId> {
        self.starting.iter().copied()
    }

    /// The settled threads that their mail would wake, the longest waiting letter first; see [`Thread::woken_by`].
    pub fn waking(&self) -> impl Iterator<Item = ThreadId> {
        self.waking.values().copied()
    }

    /// The open threads that carry a fence of their own.
    pub fn fenced(&self) -> impl Iterator<Item = (ThreadId, &Arc<Fence>)> {
        self.fences
            .iter()
            .filter_map(|id| Some((*id, self.thread(*id)?.fence.as_ref()?)))
    }

    /// The approvals that wait for an operator, the nearest deadline first.
    pub fn pending_approvals(&self) -> impl Iterator<Item = &Arc<Approval>> {
        self.pending.iter().filter_map(|(_, id)| self.approvals.get(id))
    }

    /// The settled threads whose turn ended with input waiting, in the order in which they ended.
    pub fn going_on(&self) -> impl Iterator<Item = &Arc<Thread>> {
        self.going_on.values().filter_map(|id| self.thread(*id))
    }

    /// The open threads that have a budget of their own.
    pub fn budgeted(&self) -> impl Iterator<Item = &Arc<Thread>> {
        self.budgeted.iter().filter_map(|id| self.thread(*id))
    }

    /// The open threads whose budget is spent, or that are marked so.
    pub fn at_their_budget(&self) -> impl Iterator<Item = &Arc<Thread>> {
        self.spent.iter().filter_map(|id| self.thread(*id))
    }

    /// The orchestrators that completed their turn and did not say that they are done.
    pub fn idle_orchestrators(&self) -> impl Iterator<Item = &Arc<Thread>> {
        self.idle_orchestrators.iter().filter_map(|id| self.thread(*id))
    }

    /// Where a thread works: in its own directory, else in the session's; empty: nowhere.
    #[must_use]
    pub fn workspace<'a>(&'a self, thread: &'a Thread) -> &'a str {
        let own = &thread.spawned.working_directory;
        if own.is_empty() { &self.settings.cwd } else { own }
    }

    /// The thread and its ancestors, from itself to the root.
    pub fn lineage(&self, id: ThreadId) -> impl Iterator<Item = &Arc<Thread>> {
        std::iter::successors(self.thread(id), |thread| {
            thread.spawned.parent.and_then(|parent| self.thread(parent))
        })
    }

    /// Whether `id` is `ancestor` or below it.
    #[must_use]
    pub fn is_within(&self, id: ThreadId, ancestor: ThreadId) -> bool {
        self.lineage(id).any(|thread| thread.id == ancestor)
    }

    /// Whether the thread or an ancestor is fenced: nothing may start in it.
    #[must_use]
    pub fn is_closing(&self, id: ThreadId) -> bool {
        self.fence_over(id).is_some()
    }

    /// Whether the thread is closed, or on its way there.
    fn is_gone(&self, id: ThreadId) -> bool {
        self.is_closing(id)
            || self
                .thread(id)
                .is_none_or(|thread| thread.status.kind() == StatusKind::Shutdown)
    }

    /// The nearest fence over a thread.
    #[must_use]
    pub fn fence_over(&self, id: ThreadId) -> Option<&Arc<Fence>> {
        self.fences_over(id).next()
    }

    /// Every fence over a thread, the nearest first: the earliest deadline and the strictest policy of them count.
    pub fn fences_over(&self, id: ThreadId) -> impl Iterator<Item = &Arc<Fence>> {
        self.lineage(id).filter_map(|thread| thread.fence.as_ref())
    }

    /// Whether the thread or an ancestor was fenced when the event of that number had happened. The answer is the same
    /// whenever it is asked for, so that what is derived from the log does not depend on when it is read.
    #[must_use]
    pub fn was_closing(&self, id: ThreadId, at: Sequence) -> bool {
        self.lineage(id).any(|thread| thread.was_fenced(at))
    }

    /// A thread and everything below it, parents before children, siblings in spawn order.
    #[must_use]
    pub fn subtree(&self, top: ThreadId) -> Vec<&Arc<Thread>> {
        let mut found = Vec::new();
        let mut stack: Vec<ThreadId> = vec![top];
        while let Some(thread) = stack.pop().and_then(|id| self.thread(id)) {
            stack.extend(thread.children.iter().rev().copied());
            found.push(thread);
        }
        found
    }

    /// The created edges that end in a thread, in the order of their ids.
    pub fn created_edges_of(&self, id: ThreadId) -> impl Iterator<Item = &Arc<Edge>> {
        let ids = self.edges_at.get(&id).into_iter().flatten();
        ids.filter_map(|id| self.edges.get(id))
    }

    /// What all threads spent, closed ones included.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.root
            .and_then(|root| self.thread(root))
            .map(|root| root.subtree_usage)
            .unwrap_or_default()
    }

    /// Whether work is owed that no request brings about: the session must be awake, and is loaded at the service's start.
    /// What its webhooks were sent is not known here, so one that has any is always loaded. A thread that is active has a
    /// runner that may be lost, or waits for one; only a root that its client executes has not.
    #[must_use]
    pub fn is_at_work(&self) -> bool {
        let active = self.count(StatusKind::PendingInit) + self.count(StatusKind::Running);
        let orchestrates = self.settings.orchestration == Orchestration::Auto && !self.idle_orchestrators.is_empty();
        active > u32::from(self.is_run_by_client())
            || !self.queue.is_empty()
            || !self.fences.is_empty()
            || !self.pending.is_empty()
            || !self.settings.webhooks.is_empty()
            || orchestrates
    }

    fn is_run_by_client(&self) -> bool {
        self.root
            .and_then(|root| self.thread(root))
            .is_some_and(|root| root.spawned.client_owned && root.status.kind().is_active())
    }

    /// When a closed session is to be deleted, if it is not kept for good.
    #[must_use]
    pub fn expires(&self) -> Option<UnixMillis> {
        let retention = self.settings.retention.filter(|_| self.closed)?;
        let ended = self.root.and_then(|root| self.thread(root))?.since;
        Some(ended.plus(retention))
    }

    /// Takes up an edge.
    pub(crate) fn connect(&mut self, edge: &Edge) {
        for end in [edge.from, edge.to] {
            self.edges_at.entry(end).or_default().insert(edge.id);
        }
        self.edges.insert(edge.id, Arc::new(edge.clone()));
    }

    /// Takes up an approval as it stands.
    pub(crate) fn remember_approval(&mut self, approval: Approval) {
        if approval.verdict.is_none() {
            self.pending.insert((approval.deadline, approval.id));
            // Only in a snapshot of the middle of an append.
            if self.is_gone(approval.thread) {
                self.moot.insert(approval.id);
            }
        }
        self.approvals.insert(approval.id, Arc::new(approval));
    }

    /// Drops an edge.
    pub(super) fn disconnect(&mut self, id: EdgeId) {
        let Some(edge) = self.edges.remove(&id) else {
            return;
        };
        for end in [edge.from, edge.to] {
            if let Some(edges) = self.edges_at.get_mut(&end) {
                edges.remove(&id);
                if edges.is_empty() {
                    self.edges_at.remove(&end);
                }
            }
        }
    }

    /// Replaces a thread and keeps the indices in step.
    pub(super) fn put(&mut self, thread: Thread) {
        let id = thread.id;
        if let Some(old) = self.threads.get(&id).cloned() {
            self.unindex(&old);
        } else {
            self.order.insert(thread.spawn_sequence, id);
            if !thread.spawned.alias.is_empty() {
                self.aliases.insert(thread.spawned.alias.to_lowercase(), id);
            }
        }
        let kind = thread.status.kind();
        *self.counts.entry(kind).or_insert(0) += 1;
        if self.holds_slot(&thread) {
            self.holding.insert(id);
        }
        match kind {
            StatusKind::Queued => {
                self.queue.insert(thread.status_sequence, id);
            }
            StatusKind::PendingInit => {
                self.starting.insert(id);
            }
            StatusKind::AwaitingApproval
            | StatusKind::Running
            | StatusKind::Completed
            | StatusKind::Errored
            | StatusKind::Interrupted
            | StatusKind::Shutdown => {}
        }
        if thread.fence.is_some() && kind.is_open() {
            self.fences.insert(id);
        }
        if let Some(letter) = thread.woken_by() {
            self.waking.insert(letter, id);
        }
        if thread.goes_on {
            self.going_on.insert(thread.status_sequence, id);
        }
        if kind.is_open() && thread.budget != Budget::default() {
            self.budgeted.insert(id);
        }
        let is_marked = thread.conditions.contains_key(&ConditionKind::BudgetExhausted);
        if kind.is_open() && (is_marked || budget::exhausted(&thread).is_some()) {
            self.spent.insert(id);
        }
        if orchestration::is_idle(&thread) {
            self.idle_orchestrators.insert(id);
        }
        self.threads.insert(id, Arc::new(thread));
    }

    fn unindex(&mut self, old: &Thread) {
        let kind = old.status.kind();
        match self.count(kind).saturating_sub(1) {
            0 => self.counts.remove(&kind),
            left => self.counts.insert(kind, left),
        };
        self.holding.remove(&old.id);
        self.starting.remove(&old.id);
        self.fences.remove(&old.id);
        if let Some(letter) = old.woken_by() {
            self.waking.remove(&letter);
        }
        self.budgeted.remove(&old.id);
        self.spent.remove(&old.id);
        self.idle_orchestrators.remove(&old.id);
        if old.goes_on {
            self.going_on.remove(&old.status_sequence);
        }
        if kind == StatusKind::Queued {
            self.queue.remove(&old.status_sequence);
        }
    }

    /// The slot rule: a function of one thread's state. The root holds none.
    fn holds_slot(&self, thread: &Thread) -> bool {
        let counted = match self.settings.slot_release {
            SlotRelease::Settle => thread.status.kind().is_active(),
            // Who settled before it ever had a turn took no slot that closing could free.
            SlotRelease::Close => match thread.status.kind() {
                StatusKind::PendingInit | StatusKind::Running => true,
                StatusKind::Completed | StatusKind::Errored | StatusKind::Interrupted => {
                    thread.turn != LatestTurn::None
                }
                StatusKind::Queued | StatusKind::AwaitingApproval | StatusKind::Shutdown => false,
            },
        };
        counted && thread.spawned.parent.is_some()
    }

    pub(super) fn apply_settings(&mut self, change: &SettingsChange) {
        let settings = Arc::make_mut(&mut self.settings);
        if let Some(mode) = change.mode {
            settings.mode = mode;
        }
        if let Some(limits) = change.limits {
            settings.limits = limits;
        }
        if let Some(orchestration) = change.orchestration {
            settings.orchestration = orchestration;
        }
        if let Some(webhooks) = &change.webhooks {
            settings.webhooks.clone_from(webhooks);
            self.webhooks_since = self.sequence;
        }
        self.paused = change.paused.unwrap_or(self.paused);
        if let (Some(budget), Some(root)) = (change.budget, self.root) {
            self.set_budget(root, budget);
        }
    }

    /// Gives a thread a budget. The session's budget is the root's; its settings only repeat it.
    pub(super) fn set_budget(&mut self, id: ThreadId, budget: Budget) {
        let Some(thread) = self.threads.get(&id).cloned() else {
            return;
        };
        let mut thread = Arc::unwrap_or_clone(thread);
        thread.budget = budget;
        self.put(thread);
        if self.root == Some(id) {
            Arc::make_mut(&mut self.settings).budget = budget;
        }
    }
}

/// The longest that a cascade may take before the rest of it is forced.
pub const CASCADE_DEADLINE: Duration = Duration::from_secs(30);
