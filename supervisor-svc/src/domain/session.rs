//! A session as its events made it. Cheap to clone: the maps share their nodes, so that a snapshot, a working copy and the
//! published state cost what differs between them.
//!
//! Invariant: `root` and the indices (`order`, `aliases`, `roles`, `counts`, and what a `Place` names) are functions of `threads`;
//! `Session::put` and `Session::update` alone change either. `edges_at` is a function of `edges`; `Session::connect` and
//! `Session::disconnect` alone change them. `pending`, `decided` and `moot` are functions of `approvals` and `threads`, kept
//! where approvals are folded. So a snapshot does not keep any of them.

use std::{sync::Arc, time::Duration};

use imbl::{OrdMap, OrdSet};
use tool_policy::Policy;

use super::{
    approval::Approval,
    authorize, budget,
    event::{ConditionKind, Edge, Fence, SettingsChange},
    ids::{ApprovalId, EdgeId, Sequence, SessionId, ThreadId},
    notify::WebhookStart,
    orchestration,
    roles::Roles,
    settings::{Budget, Orchestration, Settings, SlotRelease, Usage, Webhook},
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
    /// The decided ones, by the event that requested them.
    pub(super) decided: OrdSet<(Sequence, ApprovalId)>,
    /// Those that wait and whose thread is being closed or is closed. Empty after every append: they are decided in the same one.
    pub(super) moot: OrdSet<ApprovalId>,
    /// Where telling each of the present webhooks begins, by its URL; see [`Self::receivers`].
    pub(crate) webhook_starts: OrdMap<String, WebhookStart>,
    /// Who waits for whom at this moment. Volatile: in no log, and no part of what makes two states equal.
    pub waits: Waits,
    root: Option<ThreadId>,
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
    roles: Roles,
    counts: OrdMap<StatusKind, u32>,
}

impl Session {
    /// A session without threads, as of its creation.
    pub(crate) fn new(id: SessionId, settings: Settings, created: UnixMillis) -> Self {
        let ceiling = settings
            .tool_ceiling
            .clone()
            .and_then(|layer| Policy::compile(vec![layer]).ok())
            .unwrap_or_else(Policy::unrestricted);
        // Both were checked when the session was opened.
        let approval_gate =
            authorize::approval_gate(&settings.approve_tools).unwrap_or_else(|_| Policy::unrestricted());
        let webhook_starts = webhook_starts(&settings.webhooks, &OrdMap::new(), Sequence::ZERO);
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
            decided: OrdSet::new(),
            moot: OrdSet::new(),
            webhook_starts,
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
            roles: Roles::default(),
            counts: OrdMap::new(),
        }
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

    /// A thread by its alias, case-insensitive. A thread that never came to be has given its alias back.
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
        // Most threads are in no queue, and are not looked for in it.
        let thread = self
            .thread(id)
            .filter(|thread| thread.status.kind() == StatusKind::Queued)?;
        let place = self.queued().position(|queued| queued == thread.id)?;
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

    /// Whether work is owed that no request brings about: the session must be awake, and is loaded at the service's start. A
    /// thread that is active has a runner that may be lost, or waits for one; only a root that its client executes has not.
    #[must_use]
    pub fn is_at_work(&self) -> bool {
        let active = self.count(StatusKind::PendingInit) + self.count(StatusKind::Running);
        let orchestrates = self.settings.orchestration == Orchestration::Auto && !self.idle_orchestrators.is_empty();
        active > u32::from(self.is_run_by_client())
            || !self.queue.is_empty()
            || !self.fences.is_empty()
            || !self.pending.is_empty()
            || orchestrates
    }

    fn is_run_by_client(&self) -> bool {
        self.root
            .and_then(|root| self.thread(root))
            .is_some_and(|root| root.spawned.client_owned && root.status.kind().is_active())
    }

    /// The receivers of notifications, each with where telling it begins.
    pub fn receivers(&self) -> impl Iterator<Item = (&Webhook, WebhookStart)> {
        let webhooks = self.settings.webhooks.iter();
        webhooks.filter_map(|webhook| Some((webhook, *self.webhook_starts.get(&webhook.url)?)))
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
        } else {
            self.decided.insert((approval.sequence, approval.id));
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

    /// Takes up a thread that is new and has no children yet, below its parent.
    pub(crate) fn put(&mut self, mut thread: Thread) {
        let id = thread.id;
        let adopted = thread.spawned.parent.and_then(|parent| {
            self.update(parent, |parent| {
                parent.children.push_back(id);
                parent.open_children += u32::from(thread.status.kind().is_open());
            })
        });
        if adopted.is_none() {
            self.root = Some(id);
        }
        let role = self.roles.shared(&thread.spawned.role);
        if !Arc::ptr_eq(&role, &thread.spawned.role) {
            Arc::make_mut(&mut thread.spawned).role = role;
        }
        self.order.insert(thread.spawn_sequence, id);
        let place = Place::of(&thread, self.settings.slot_release);
        if place.has_alias {
            self.aliases.insert(thread.spawned.alias.to_lowercase(), id);
        }
        self.move_thread(id, &Place::default(), &place);
        self.threads.insert(id, Arc::new(thread));
    }

    /// Changes a thread and keeps the indices in step; nothing happens if there is none.
    pub(super) fn update<R>(&mut self, id: ThreadId, change: impl FnOnce(&mut Thread) -> R) -> Option<R> {
        let slot_release = self.settings.slot_release;
        // Whoever holds the state before keeps the thread as it was; in a replay nobody does, and nothing is copied.
        let thread = Arc::make_mut(self.threads.get_mut(&id)?);
        let before = Place::of(thread, slot_release);
        let result = change(thread);
        let after = Place::of(thread, slot_release);
        // Who loses it never gets it back.
        let given_back = (before.has_alias && !after.has_alias).then(|| thread.spawned.alias.to_lowercase());
        if let Some(alias) = given_back {
            self.aliases.remove(&alias);
        }
        self.move_thread(id, &before, &after);
        Some(result)
    }

    /// Touches only the indices in which the place differs: the others stay shared with the state before.
    fn move_thread(&mut self, id: ThreadId, before: &Place, after: &Place) {
        if before == after {
            return;
        }
        if before.kind != after.kind {
            if let Some(kind) = before.kind {
                match self.count(kind).saturating_sub(1) {
                    0 => self.counts.remove(&kind),
                    left => self.counts.insert(kind, left),
                };
            }
            if let Some(kind) = after.kind {
                *self.counts.entry(kind).or_insert(0) += 1;
            }
        }
        let sets = [
            (&mut self.holding, before.holds_slot, after.holds_slot),
            (&mut self.starting, before.starts, after.starts),
            (&mut self.fences, before.is_fenced, after.is_fenced),
            (&mut self.budgeted, before.is_budgeted, after.is_budgeted),
            (&mut self.spent, before.is_spent, after.is_spent),
            (&mut self.idle_orchestrators, before.is_idle, after.is_idle),
        ];
        for (set, was_there, is_there) in sets {
            if was_there && !is_there {
                set.remove(&id);
            } else if is_there && !was_there {
                set.insert(id);
            }
        }
        let queues = [
            (&mut self.queue, before.queued, after.queued),
            (&mut self.waking, before.woken_by, after.woken_by),
            (&mut self.going_on, before.goes_on, after.goes_on),
        ];
        for (queue, old, new) in queues {
            if old != new {
                if let Some(old) = old {
                    queue.remove(&old);
                }
                if let Some(new) = new {
                    queue.insert(new, id);
                }
            }
        }
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
        if let Some(edges) = change.edge_management {
            settings.edge_management = edges;
        }
        if let Some(orchestrators) = &change.orchestrators {
            settings.orchestrators.clone_from(orchestrators);
        }
        if let Some(webhooks) = &change.webhooks {
            settings.webhooks.clone_from(webhooks);
            self.webhook_starts = webhook_starts(webhooks, &self.webhook_starts, self.sequence);
        }
        self.paused = change.paused.unwrap_or(self.paused);
        if let (Some(budget), Some(root)) = (change.budget, self.root) {
            self.set_budget(root, budget);
        }
    }

    /// Gives a thread a budget. The session's budget is the root's; its settings only repeat it.
    pub(super) fn set_budget(&mut self, id: ThreadId, budget: Budget) {
        if self.update(id, |thread| thread.budget = budget).is_none() {
            return;
        }
        if self.root == Some(id) {
            Arc::make_mut(&mut self.settings).budget = budget;
        }
    }
}

/// Where telling each webhook begins once an event gave these: one whose URL is there already goes on where it is.
fn webhook_starts(
    webhooks: &[Webhook],
    present: &OrdMap<String, WebhookStart>,
    event: Sequence,
) -> OrdMap<String, WebhookStart> {
    webhooks
        .iter()
        .map(|webhook| {
            let start = present.get(&webhook.url).copied();
            let start = start.unwrap_or_else(|| WebhookStart::given_by(event));
            (webhook.url.clone(), start)
        })
        .collect()
}

/// The longest that a cascade may take before the rest of it is forced.
pub const CASCADE_DEADLINE: Duration = Duration::from_secs(30);

/// Where a thread stands in the indices: a function of the thread and of the session's slot rule, which never changes. The
/// default is that of a thread that is not there.
#[derive(Debug, Default, PartialEq, Eq)]
struct Place {
    kind: Option<StatusKind>,
    holds_slot: bool,
    starts: bool,
    is_fenced: bool,
    is_budgeted: bool,
    is_spent: bool,
    is_idle: bool,
    has_alias: bool,
    queued: Option<Sequence>,
    woken_by: Option<Sequence>,
    goes_on: Option<Sequence>,
}

impl Place {
    fn of(thread: &Thread, slot_release: SlotRelease) -> Self {
        let kind = thread.status.kind();
        let is_marked = thread.conditions.contains_key(&ConditionKind::BudgetExhausted);
        Self {
            kind: Some(kind),
            holds_slot: holds_slot(thread, slot_release),
            starts: kind == StatusKind::PendingInit,
            is_fenced: thread.fence.is_some() && kind.is_open(),
            is_budgeted: kind.is_open() && thread.budget != Budget::default(),
            is_spent: kind.is_open() && (is_marked || budget::exhausted(thread).is_some()),
            is_idle: orchestration::is_idle(thread),
            has_alias: !thread.spawned.alias.is_empty() && !thread.never_came_to_be(),
            queued: (kind == StatusKind::Queued).then_some(thread.status_sequence),
            woken_by: thread.woken_by(),
            goes_on: thread.goes_on.then_some(thread.status_sequence),
        }
    }
}

/// The slot rule. The root holds none.
fn holds_slot(thread: &Thread, slot_release: SlotRelease) -> bool {
    let counted = match slot_release {
        SlotRelease::Settle => thread.status.kind().is_active(),
        // Who settled before it ever had a turn took no slot that closing could free.
        SlotRelease::Close => match thread.status.kind() {
            StatusKind::PendingInit | StatusKind::Running => true,
            StatusKind::Completed | StatusKind::Errored | StatusKind::Interrupted => thread.turn != LatestTurn::None,
            StatusKind::Queued | StatusKind::AwaitingApproval | StatusKind::Shutdown => false,
        },
    };
    counted && thread.spawned.parent.is_some()
}
