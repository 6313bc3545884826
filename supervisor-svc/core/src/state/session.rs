//! The state of a session, folded from its events. Cheap to clone: the maps share their nodes, so a snapshot, a working
//! copy and the published state cost only their differences.
//!
//! Invariant: `root` and the indices (`order`, `aliases`, `roles`, `counts`, and those that `IndexKeys` describes) are
//! functions of `threads`. Only `Session::put` and `Session::update` change them. `edges_at` is a function of `edges`.
//! Only `Session::connect` and `Session::disconnect` change them. `pending`, `decided` and `moot` are functions of
//! `approvals` and `threads`, and are maintained where approvals are folded. Snapshots therefore contain none of the
//! indices.

use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use tool_policy::Policy;

use crate::{
    event::{ConditionKind, Edge, Fence, SettingsChange},
    ids::{ApprovalId, EdgeId, GroupId, Sequence, SessionId, ThreadId},
    settings::{Budget, EdgeManagement, Orchestration, Settings, SlotRelease, Usage, Webhook, approval_gate},
    state::{
        approval::Approval,
        group::Group,
        roles::Roles,
        thread::{LatestTurn, Thread},
        wait::Waits,
        webhook::WebhookStart,
    },
    status::StatusKind,
    time::UnixMillis,
};

/// One root thread and its tree.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// The settings.
    pub settings: Arc<Settings>,
    /// The maximum tool policy of all threads.
    pub ceiling: Policy,
    /// The tools that never need an approval.
    pub approval_gate: Policy,
    /// Whether the session is paused: turns and spawns do not start.
    pub paused: bool,
    /// Whether the root is closed permanently.
    pub closed: bool,
    /// When it was opened.
    pub created: UnixMillis,
    /// When its last event was recorded.
    pub updated: UnixMillis,
    /// The sequence of its last event.
    pub sequence: Sequence,
    /// The created edges, all between open threads. The tree edges between parents and children are implicit and have
    /// no event.
    pub edges: OrdMap<EdgeId, Arc<Edge>>,
    /// The pending approvals and the recently decided ones.
    pub approvals: OrdMap<ApprovalId, Arc<Approval>>,
    /// The pending approvals, by deadline.
    pub(crate) pending: OrdSet<(Option<UnixMillis>, ApprovalId)>,
    /// The decided approvals, by the event that requested them.
    pub(crate) decided: OrdSet<(Sequence, ApprovalId)>,
    /// The pending approvals of closing or closed threads. Empty after every append, because that append decides them.
    pub(crate) moot: OrdSet<ApprovalId>,
    /// The delivery start of each current webhook, by URL. See [`Self::receivers`].
    pub webhook_starts: OrdMap<String, WebhookStart>,
    /// The current waits between threads. Volatile: not in the log, and ignored when states are compared.
    pub waits: Waits,
    /// The groups.
    groups: OrdMap<GroupId, Arc<Group>>,
    open_groups: OrdSet<GroupId>,
    item_threads: usize,
    ended_items: OrdSet<ThreadId>,
    root: Option<ThreadId>,
    edges_at: OrdMap<ThreadId, OrdSet<EdgeId>>,
    threads: OrdMap<ThreadId, Arc<Thread>>,
    order: OrdMap<Sequence, ThreadId>,
    holding: OrdSet<ThreadId>,
    queue: OrdMap<Sequence, ThreadId>,
    starting: OrdSet<ThreadId>,
    waking: OrdMap<Sequence, ThreadId>,
    fences: OrdSet<ThreadId>,
    continuing: OrdMap<Sequence, ThreadId>,
    budgeted: OrdSet<ThreadId>,
    spent: OrdSet<ThreadId>,
    idle_orchestrators: OrdSet<ThreadId>,
    aliases: OrdMap<String, ThreadId>,
    roles: Roles,
    counts: OrdMap<StatusKind, u32>,
}

impl Session {
    /// Creates a session without threads.
    pub fn new(id: SessionId, settings: Settings, created: UnixMillis) -> Self {
        let ceiling = settings
            .tool_ceiling
            .clone()
            .and_then(|layer| Policy::compile(vec![layer]).ok())
            .unwrap_or_else(Policy::unrestricted);
        // Both were validated when the session was opened.
        let approval_gate = approval_gate(&settings.approve_tools).unwrap_or_else(|_| Policy::unrestricted());
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
            groups: OrdMap::new(),
            open_groups: OrdSet::new(),
            item_threads: 0,
            ended_items: OrdSet::new(),
            root: None,
            edges_at: OrdMap::new(),
            threads: OrdMap::new(),
            order: OrdMap::new(),
            holding: OrdSet::new(),
            queue: OrdMap::new(),
            starting: OrdSet::new(),
            waking: OrdMap::new(),
            fences: OrdSet::new(),
            continuing: OrdMap::new(),
            budgeted: OrdSet::new(),
            spent: OrdSet::new(),
            idle_orchestrators: OrdSet::new(),
            aliases: OrdMap::new(),
            roles: Roles::default(),
            counts: OrdMap::new(),
        }
    }

    /// Returns the root's id. An opened session always has a root, because the session's opening and the root's spawn
    /// are in one append.
    #[must_use]
    pub const fn root_id(&self) -> Option<ThreadId> {
        self.root
    }

    /// Returns the root.
    #[must_use]
    pub fn root(&self) -> Option<&Arc<Thread>> {
        self.thread(self.root?)
    }

    /// Returns a thread by its id.
    #[must_use]
    pub fn thread(&self, id: ThreadId) -> Option<&Arc<Thread>> {
        self.threads.get(&id)
    }

    /// Returns a thread by its alias, case-insensitive. The alias of a thread whose spawn was never approved is
    /// released.
    #[must_use]
    pub fn thread_by_alias(&self, alias: &str) -> Option<ThreadId> {
        self.aliases.get(&alias.to_lowercase()).copied()
    }

    /// Returns all threads in spawn order. Parents precede their children.
    pub fn in_spawn_order(&self) -> impl DoubleEndedIterator<Item = &Arc<Thread>> {
        self.order.values().filter_map(|id| self.threads.get(id))
    }

    /// Returns the number of threads over the session's lifetime.
    #[must_use]
    pub fn total(&self) -> usize {
        self.threads.len()
    }

    /// Returns the number of threads with the given status.
    #[must_use]
    pub fn count(&self, kind: StatusKind) -> u32 {
        self.counts.get(&kind).copied().unwrap_or_default()
    }

    /// Returns the number of open threads, including the root.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.total() - self.count(StatusKind::Shutdown) as usize
    }

    /// Returns the threads that hold a slot.
    #[must_use]
    pub fn holding(&self) -> &OrdSet<ThreadId> {
        &self.holding
    }

    /// Returns the threads that wait for a slot, in order of arrival.
    pub fn queued(&self) -> impl Iterator<Item = ThreadId> {
        self.queue.values().copied()
    }

    /// Returns a thread's position in the queue, counted from 1.
    #[must_use]
    pub fn queue_position(&self, id: ThreadId) -> Option<u32> {
        // Most threads are not queued. Skip the search for them.
        let thread = self
            .thread(id)
            .filter(|thread| thread.status.kind() == StatusKind::Queued)?;
        let position = self.queued().position(|queued| queued == thread.id)?;
        u32::try_from(position + 1).ok()
    }

    /// Returns the threads in PENDING_INIT, which have a pending placement or turn.
    pub fn starting(&self) -> impl Iterator<Item = ThreadId> {
        self.starting.iter().copied()
    }

    /// Returns the settled threads that their mail would wake, ordered by their oldest letter. See
    /// [`Thread::woken_by`].
    pub fn waking(&self) -> impl Iterator<Item = ThreadId> {
        self.waking.values().copied()
    }

    /// Returns the open threads with their own fence.
    pub fn fenced(&self) -> impl Iterator<Item = (ThreadId, &Arc<Fence>)> {
        self.fences
            .iter()
            .filter_map(|id| Some((*id, self.thread(*id)?.fence.as_ref()?)))
    }

    /// Returns the pending approvals, earliest deadline first. In a session, either all pending approvals have a
    /// deadline or none has.
    pub fn pending_approvals(&self) -> impl Iterator<Item = &Arc<Approval>> {
        self.pending.iter().filter_map(|(_, id)| self.approvals.get(id))
    }

    /// Returns the settled threads whose turn ended with queued input, in the order in which the turns ended.
    pub fn continuing(&self) -> impl Iterator<Item = &Arc<Thread>> {
        self.continuing.values().filter_map(|id| self.thread(*id))
    }

    /// Returns the open threads with their own budget.
    pub fn budgeted(&self) -> impl Iterator<Item = &Arc<Thread>> {
        self.budgeted.iter().filter_map(|id| self.thread(*id))
    }

    /// Returns the open threads with an exhausted budget, or with the condition BUDGET_EXHAUSTED.
    pub fn at_their_budget(&self) -> impl Iterator<Item = &Arc<Thread>> {
        self.spent.iter().filter_map(|id| self.thread(*id))
    }

    /// Returns the threads for which [`Thread::is_idle_orchestrator`] is true.
    pub fn idle_orchestrators(&self) -> impl Iterator<Item = &Arc<Thread>> {
        self.idle_orchestrators.iter().filter_map(|id| self.thread(*id))
    }

    /// Returns a group by its id.
    #[must_use]
    pub fn group(&self, id: GroupId) -> Option<&Arc<Group>> {
        self.groups.get(&id)
    }

    /// Returns a group by its name. An empty name finds nothing.
    #[must_use]
    pub fn group_by_name(&self, name: &str) -> Option<&Arc<Group>> {
        let mut named = self.groups.values().filter(|_| !name.is_empty());
        named.find(|group| group.spec.name == name)
    }

    /// Returns all groups, ordered by id.
    pub fn groups(&self) -> impl Iterator<Item = &Arc<Group>> {
        self.groups.values()
    }

    /// Returns the groups that have not ended.
    pub fn open_groups(&self) -> impl Iterator<Item = &Arc<Group>> {
        self.open_groups.iter().filter_map(|id| self.group(*id))
    }

    /// Returns the threads whose item has ended, but whose GroupItemEnded event is not recorded yet.
    pub(crate) fn ended_items(&self) -> impl Iterator<Item = &Arc<Thread>> {
        self.ended_items.iter().filter_map(|id| self.thread(*id))
    }

    /// Returns the number of threads that work or worked on items of groups.
    #[must_use]
    pub const fn item_threads(&self) -> usize {
        self.item_threads
    }

    /// Adds a group, or replaces it.
    pub fn put_group(&mut self, group: Group) {
        let id = group.spec.id;
        if group.has_ended() {
            self.open_groups.remove(&id);
        } else {
            self.open_groups.insert(id);
        }
        self.groups.insert(id, Arc::new(group));
    }

    /// Changes a group. Does nothing if the group does not exist.
    pub(crate) fn update_group(&mut self, id: GroupId, change: impl FnOnce(&mut Group)) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        let group = Arc::make_mut(group);
        change(group);
        if group.has_ended() {
            self.open_groups.remove(&id);
        } else {
            self.open_groups.insert(id);
        }
    }

    /// Returns the working directory of a thread: its own, otherwise the session's. Empty means none.
    #[must_use]
    pub fn workspace<'a>(&'a self, thread: &'a Thread) -> &'a str {
        let own = &thread.spawned.working_directory;
        if own.is_empty() { &self.settings.cwd } else { own }
    }

    /// Returns the current edge management of a graph thread: its template's declaration, narrowed by its spawn and by
    /// the session's setting.
    #[must_use]
    pub fn edge_management(&self, thread: &Thread) -> EdgeManagement {
        thread.spawned.edge_management.min(self.settings.edge_management)
    }

    /// Returns the thread and its ancestors, up to the root.
    pub fn lineage(&self, id: ThreadId) -> impl Iterator<Item = &Arc<Thread>> {
        std::iter::successors(self.thread(id), |thread| {
            thread.spawned.parent.and_then(|parent| self.thread(parent))
        })
    }

    /// Returns whether `id` is `ancestor` or below it.
    #[must_use]
    pub fn is_within(&self, id: ThreadId, ancestor: ThreadId) -> bool {
        self.lineage(id).any(|thread| thread.id == ancestor)
    }

    /// Returns whether the thread or an ancestor is fenced. No new work may start in it.
    #[must_use]
    pub fn is_closing(&self, id: ThreadId) -> bool {
        self.fence_over(id).is_some()
    }

    /// Returns whether the thread is closed or closing.
    fn is_gone(&self, id: ThreadId) -> bool {
        self.is_closing(id)
            || self
                .thread(id)
                .is_none_or(|thread| thread.status.kind() == StatusKind::Shutdown)
    }

    /// Returns the nearest fence of a thread and its ancestors.
    #[must_use]
    pub fn fence_over(&self, id: ThreadId) -> Option<&Arc<Fence>> {
        self.fences_over(id).next()
    }

    /// Returns all fences of a thread and its ancestors, nearest first. The earliest deadline and the strictest policy
    /// apply.
    pub fn fences_over(&self, id: ThreadId) -> impl Iterator<Item = &Arc<Fence>> {
        self.lineage(id).filter_map(|thread| thread.fence.as_ref())
    }

    /// Returns whether the thread or an ancestor was fenced after the event with that number. The result never changes
    /// over time, so data derived from the log does not depend on when it is read.
    #[must_use]
    pub fn was_closing(&self, id: ThreadId, at: Sequence) -> bool {
        self.lineage(id).any(|thread| thread.was_fenced(at))
    }

    /// Returns a thread and its descendants. Parents precede their children, and siblings are in spawn order.
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

    /// Returns the created edges of a thread, ordered by id.
    pub fn created_edges_of(&self, id: ThreadId) -> impl Iterator<Item = &Arc<Edge>> {
        let ids = self.edges_at.get(&id).into_iter().flatten();
        ids.filter_map(|id| self.edges.get(id))
    }

    /// Returns the usage of all threads, including closed ones.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.root().map(|root| root.subtree_usage).unwrap_or_default()
    }

    /// Returns whether the session has pending effects that no request triggers. Such a session must stay active and is
    /// loaded at startup. An active thread has a runner that can be lost, or waits for one. The exception is a root
    /// that its client executes.
    #[must_use]
    pub fn is_at_work(&self) -> bool {
        let active = self.count(StatusKind::PendingInit) + self.count(StatusKind::Running);
        let orchestrates = self.settings.orchestration == Orchestration::Auto && !self.idle_orchestrators.is_empty();
        active > u32::from(self.is_run_by_client())
            || !self.queue.is_empty()
            || !self.fences.is_empty()
            || !self.pending.is_empty()
            || !self.open_groups.is_empty()
            || orchestrates
    }

    fn is_run_by_client(&self) -> bool {
        self.root()
            .is_some_and(|root| root.spawned.client_owned && root.status.kind().is_active())
    }

    /// Returns the webhooks, each with its delivery start.
    pub fn receivers(&self) -> impl Iterator<Item = (&Webhook, WebhookStart)> {
        let webhooks = self.settings.webhooks.iter();
        webhooks.filter_map(|webhook| Some((webhook, *self.webhook_starts.get(&webhook.url)?)))
    }

    /// Returns the time at which a closed session is deleted. `None` if it is kept.
    #[must_use]
    pub fn expires(&self) -> Option<UnixMillis> {
        let retention = self.settings.retention.filter(|_| self.closed)?;
        let ended = self.root()?.since;
        Some(ended.plus(retention))
    }

    /// Adds an edge.
    pub fn connect(&mut self, edge: &Edge) {
        for end in [edge.from, edge.to] {
            self.edges_at.entry(end).or_default().insert(edge.id);
        }
        self.edges.insert(edge.id, Arc::new(edge.clone()));
    }

    /// Stores an approval in its current state.
    pub fn remember_approval(&mut self, approval: Approval) {
        if approval.verdict.is_none() {
            self.pending.insert((approval.deadline, approval.id));
            // Only possible in a snapshot taken in the middle of an append.
            if self.is_gone(approval.thread) {
                self.moot.insert(approval.id);
            }
        } else {
            self.decided.insert((approval.sequence, approval.id));
        }
        self.approvals.insert(approval.id, Arc::new(approval));
    }

    /// Removes an edge.
    pub(crate) fn disconnect(&mut self, id: EdgeId) {
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

    /// Adds a new thread without children below its parent.
    pub fn put(&mut self, mut thread: Thread) {
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
        self.item_threads += usize::from(thread.spawned.item.is_some());
        self.order.insert(thread.spawn_sequence, id);
        let keys = IndexKeys::of(&thread, self.settings.slot_release);
        if keys.has_alias {
            self.aliases.insert(thread.spawned.alias.to_lowercase(), id);
        }
        self.move_thread(id, &IndexKeys::default(), &keys);
        self.threads.insert(id, Arc::new(thread));
    }

    /// Changes a thread and updates the indices. Does nothing if the thread does not exist.
    pub(crate) fn update<R>(&mut self, id: ThreadId, change: impl FnOnce(&mut Thread) -> R) -> Option<R> {
        let slot_release = self.settings.slot_release;
        // Copies the thread only if another owner shares the state. During replay the state is not shared, so nothing
        // is copied.
        let thread = Arc::make_mut(self.threads.get_mut(&id)?);
        let before = IndexKeys::of(thread, slot_release);
        let result = change(thread);
        let after = IndexKeys::of(thread, slot_release);
        // A released alias is never restored.
        let given_back = (before.has_alias && !after.has_alias).then(|| thread.spawned.alias.to_lowercase());
        if let Some(alias) = given_back {
            self.aliases.remove(&alias);
        }
        self.move_thread(id, &before, &after);
        Some(result)
    }

    /// Updates only the indices in which the thread's position differs. The other indices remain shared with the
    /// previous state.
    fn move_thread(&mut self, id: ThreadId, before: &IndexKeys, after: &IndexKeys) {
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
            (&mut self.ended_items, before.has_ended_item, after.has_ended_item),
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
            (&mut self.continuing, before.continues, after.continues),
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

    pub(crate) fn apply_settings(&mut self, change: &SettingsChange) {
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

    /// Sets a thread's budget. The root's budget is the session's budget, and the settings repeat it.
    pub(crate) fn set_budget(&mut self, id: ThreadId, budget: Budget) {
        if self.update(id, |thread| thread.budget = budget).is_none() {
            return;
        }
        if self.root == Some(id) {
            Arc::make_mut(&mut self.settings).budget = budget;
        }
    }
}

/// Returns the delivery start of each webhook that an event configures. A URL that was already present keeps its start.
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

/// The position of a thread in the indices: a function of the thread and the session's slot rule, which never changes.
/// The default is the position of a thread that does not exist.
#[derive(Debug, Default, PartialEq, Eq)]
struct IndexKeys {
    kind: Option<StatusKind>,
    holds_slot: bool,
    starts: bool,
    is_fenced: bool,
    is_budgeted: bool,
    is_spent: bool,
    is_idle: bool,
    has_ended_item: bool,
    has_alias: bool,
    queued: Option<Sequence>,
    woken_by: Option<Sequence>,
    continues: Option<Sequence>,
}

impl IndexKeys {
    fn of(thread: &Thread, slot_release: SlotRelease) -> Self {
        let kind = thread.status.kind();
        let is_marked = thread.conditions.contains_key(&ConditionKind::BudgetExhausted);
        Self {
            kind: Some(kind),
            holds_slot: holds_slot(thread, slot_release),
            starts: kind == StatusKind::PendingInit,
            is_fenced: thread.fence.is_some() && kind.is_open(),
            is_budgeted: kind.is_open() && thread.budget != Budget::default(),
            is_spent: kind.is_open() && (is_marked || thread.exhausted_resource().is_some()),
            is_idle: thread.is_idle_orchestrator(),
            has_ended_item: thread.has_ended_item(),
            has_alias: !thread.spawned.alias.is_empty() && !thread.was_never_approved(),
            queued: (kind == StatusKind::Queued).then_some(thread.status_sequence),
            woken_by: thread.woken_by(),
            continues: thread.continues.then_some(thread.status_sequence),
        }
    }
}

/// Returns whether a thread holds a slot under the slot rule. The root holds none.
fn holds_slot(thread: &Thread, slot_release: SlotRelease) -> bool {
    let counted = match slot_release {
        SlotRelease::Settle => thread.status.kind().is_active(),
        // A thread that settled before its first turn took no slot, so closing it frees none.
        SlotRelease::Close => match thread.status.kind() {
            StatusKind::PendingInit | StatusKind::Running => true,
            StatusKind::Completed | StatusKind::Errored | StatusKind::Interrupted => thread.turn != LatestTurn::None,
            StatusKind::Queued | StatusKind::AwaitingApproval | StatusKind::Shutdown => false,
        },
    };
    counted && thread.spawned.parent.is_some()
}
