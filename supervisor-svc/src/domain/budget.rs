//! Budgets: what a thread and its descendants may spend. Every rule is a function of the state, never a counter beside it:
//! what is spent is the subtree's usage, and what is reserved is what open threads with budgets of their own have not spent.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use super::{
    ids::{Generation, ThreadId},
    session::Session,
    settings::{Budget, Usage},
    thread::Thread,
    time::UnixMillis,
};

/// How old what the log knows of a running turn's tokens may become while telemetry tells more.
pub const CHECKPOINT: Duration = Duration::from_secs(30);

/// What a budget bounds. Amounts of it are whole numbers: tokens, turns, milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Tokens, read and written.
    Tokens,
    /// Turns that ended.
    Turns,
    /// Time in running turns.
    WallTime,
}

impl Resource {
    /// All of them, in the order in which they are looked at.
    pub const ALL: [Self; 3] = [Self::Tokens, Self::Turns, Self::WallTime];

    /// The name of the field in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::Turns => "turns",
            Self::WallTime => "wall_time",
        }
    }

    /// How much of it a budget allows; `None` is without bound.
    #[must_use]
    pub fn bound(self, budget: &Budget) -> Option<u64> {
        match self {
            Self::Tokens => budget.tokens,
            Self::Turns => budget.turns.map(u64::from),
            Self::WallTime => budget.wall_time.map(millis),
        }
    }

    /// How much of it was used.
    #[must_use]
    pub fn spent(self, usage: &Usage) -> u64 {
        match self {
            Self::Tokens => usage.tokens(),
            Self::Turns => u64::from(usage.turns),
            Self::WallTime => millis(usage.wall_time),
        }
    }

    /// An amount of it, for people.
    const fn amount(self, amount: u64) -> Amount {
        Amount { resource: self, amount }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

struct Amount {
    resource: Resource,
    amount: u64,
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.resource {
            Resource::Tokens | Resource::Turns => self.amount.fmt(f),
            Resource::WallTime if self.amount.is_multiple_of(1_000) => write!(f, "{}s", self.amount / 1_000),
            Resource::WallTime => write!(f, "{}ms", self.amount),
        }
    }
}

// ---- spent ----

fn reached(budget: &Budget, spent: &Usage) -> Option<Resource> {
    Resource::ALL.into_iter().find(|resource| {
        resource
            .bound(budget)
            .is_some_and(|bound| resource.spent(spent) >= bound)
    })
}

/// What of the thread's own budget is spent; the first resource of which nothing is left.
#[must_use]
pub fn exhausted(thread: &Thread) -> Option<Resource> {
    reached(&thread.budget, &thread.subtree_usage)
}

/// The nearest thread, from this one upwards, whose budget is spent: nothing may start below it.
#[must_use]
pub fn exhausted_over(session: &Session, id: ThreadId) -> Option<(&Arc<Thread>, Resource)> {
    session
        .lineage(id)
        .find_map(|thread| exhausted(thread).map(|resource| (thread, resource)))
}

/// How much of a bounded resource was spent, as `tokens 1000 of 1000`.
#[must_use]
pub fn balance(thread: &Thread, resource: Resource) -> String {
    let spent = resource.amount(resource.spent(&thread.subtree_usage));
    let bound = resource.amount(resource.bound(&thread.budget).unwrap_or(u64::MAX));
    format!("{} {spent} of {bound}", resource.as_str())
}

// ---- reserved ----

/// Whether a budget allows more than another in any respect.
#[must_use]
pub fn is_raised(from: &Budget, to: &Budget) -> bool {
    Resource::ALL
        .into_iter()
        .any(|resource| match (resource.bound(from), resource.bound(to)) {
            (Some(_), None) => true,
            (Some(from), Some(to)) => to > from,
            (None, Some(_) | None) => false,
        })
}

/// Why a budget cannot be carved: what the thread above has, and what is left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The thread above that bounds the resource.
    pub thread: ThreadId,
    /// The resource.
    pub resource: Resource,
    /// What was asked for.
    pub asked: u64,
    /// What may be asked for.
    pub left: u64,
    /// What the thread above and its descendants may spend.
    pub bound: u64,
    /// What they spent.
    pub spent: u64,
    /// What others of them were promised and have not spent.
    pub reserved: u64,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |amount| self.resource.amount(amount);
        write!(
            f,
            "budget.{} {} is more than agent {} has left: of {}, {} are spent and {} reserved; ask for at most {}, leave \
             it out to share that budget, or raise that budget with UpdateThreadBudget",
            self.resource.as_str(),
            show(self.asked),
            self.thread,
            show(self.bound),
            show(self.spent),
            show(self.reserved),
            show(self.left),
        )
    }
}

/// Checks that a budget fits into what the nearest bounded thread, from `above` upwards, has left, for each resource.
/// `of` is the thread that gets it, where that exists: what it has spent it need not be given again, and its own
/// reservation and those below it are not in its way.
///
/// # Errors
/// The first resource of which too little is left.
pub fn carve(session: &Session, above: ThreadId, of: Option<&Thread>, budget: &Budget) -> Result<(), Shortage> {
    for resource in Resource::ALL {
        let Some(asked) = resource.bound(budget) else { continue };
        let Some((over, bound)) = bounded(session, above, resource) else {
            continue;
        };
        let spent = resource.spent(&over.subtree_usage);
        let reserved = reserved(session, over.id, resource, of.map(|thread| thread.id));
        let own = of.map_or(0, |thread| resource.spent(&thread.subtree_usage));
        let left = own.saturating_add(bound.saturating_sub(spent).saturating_sub(reserved));
        if asked > left {
            return Err(Shortage {
                thread: over.id,
                resource,
                asked,
                left,
                bound,
                spent,
                reserved,
            });
        }
    }
    Ok(())
}

/// The nearest thread, from this one upwards, that bounds a resource.
fn bounded(session: &Session, id: ThreadId, resource: Resource) -> Option<(&Arc<Thread>, u64)> {
    session
        .lineage(id)
        .find_map(|thread| resource.bound(&thread.budget).map(|bound| (thread, bound)))
}

/// What the open threads whose budgets were carved from `over` have not spent of them, but for those from `except`
/// downwards. Costs what there are of open threads with budgets, and their depth.
#[must_use]
pub fn reserved(session: &Session, over: ThreadId, resource: Resource, except: Option<ThreadId>) -> u64 {
    session
        .budgeted()
        .filter(|thread| except.is_none_or(|except| !session.is_within(thread.id, except)))
        .filter_map(|thread| {
            let bound = resource.bound(&thread.budget)?;
            let (from, _) = bounded(session, thread.spawned.parent?, resource)?;
            (from.id == over).then(|| bound.saturating_sub(resource.spent(&thread.subtree_usage)))
        })
        .fold(0, u64::saturating_add)
}

// ---- metered ----

/// What an attempt has used by now: of tokens what its runner says, never less than what is known already; turns and time
/// as the supervisor counts them, so that no runner can hide them.
#[must_use]
pub fn metered(thread: &Thread, reported: &Usage, now: UnixMillis) -> Usage {
    let known = &thread.usage;
    Usage {
        input_tokens: reported.input_tokens.max(known.input_tokens),
        cached_input_tokens: reported.cached_input_tokens.max(known.cached_input_tokens),
        output_tokens: reported.output_tokens.max(known.output_tokens),
        turns: known.turns,
        wall_time: known.wall_time.saturating_add(running_time(thread, now)),
    }
}

/// As [`metered`], at the end of a turn that a runner was handed: it counts.
#[must_use]
pub fn at_turn_end(thread: &Thread, reported: &Usage, now: UnixMillis) -> Usage {
    let usage = metered(thread, reported, now);
    Usage {
        turns: usage.turns.saturating_add(1),
        ..usage
    }
}

/// How long the thread's turn has been running since its time was last written down; nothing if none runs.
#[must_use]
pub const fn running_time(thread: &Thread, now: UnixMillis) -> Duration {
    if thread.runs_turn() {
        now.since(thread.metered)
    } else {
        Duration::ZERO
    }
}

/// The thread, if this attempt runs a turn and has used more tokens than are written down.
#[must_use]
pub fn news_of<'s>(
    session: &'s Session,
    id: ThreadId,
    generation: Generation,
    reported: &Usage,
) -> Option<&'s Arc<Thread>> {
    session.thread(id).filter(|thread| {
        thread.generation == generation
            && thread.runs_turn()
            && (reported.input_tokens > thread.usage.input_tokens
                || reported.output_tokens > thread.usage.output_tokens)
    })
}

/// Whether usage that a runner tells in the middle of a turn is to be written down: it spends a budget, or what is written
/// is [`CHECKPOINT`] old.
#[must_use]
pub fn is_checkpoint_due(
    session: &Session,
    id: ThreadId,
    generation: Generation,
    reported: &Usage,
    now: UnixMillis,
) -> bool {
    let Some(thread) = news_of(session, id, generation, reported) else {
        return false;
    };
    let more = metered(thread, reported, now).since(thread.usage);
    let spends_a_budget = session
        .lineage(id)
        .any(|over| exhausted(over).is_none() && reached(&over.budget, &over.subtree_usage.plus(more)).is_some());
    spends_a_budget || now.since(thread.metered) >= CHECKPOINT
}

// ---- time ----

/// When the running turns will have spent a wall time, at the earliest.
#[must_use]
pub fn next_deadline(session: &Session) -> Option<UnixMillis> {
    deadlines(session).into_values().min()
}

/// The running turns below threads whose wall time is over by now.
#[must_use]
pub fn overdue(session: &Session, now: UnixMillis) -> BTreeSet<ThreadId> {
    let over: BTreeSet<ThreadId> = deadlines(session)
        .into_iter()
        .filter(|(_, deadline)| *deadline <= now)
        .map(|(id, _)| id)
        .collect();
    if over.is_empty() {
        return over;
    }
    running(session)
        .filter(|thread| session.lineage(thread.id).any(|above| over.contains(&above.id)))
        .map(|thread| thread.id)
        .collect()
}

/// When each thread that bounds wall time, and below which turns run, will have spent it if they go on. With n turns whose
/// times were last written down at t1..tn, and `left` to spend, that is at (t1 + .. + tn + left) / n. Costs the running
/// turns and their depth.
fn deadlines(session: &Session) -> BTreeMap<ThreadId, UnixMillis> {
    if session.budgeted().all(|thread| thread.budget.wall_time.is_none()) {
        return BTreeMap::new();
    }
    let mut clocks: BTreeMap<ThreadId, (u64, u64)> = BTreeMap::new();
    for thread in running(session) {
        let timed = session
            .lineage(thread.id)
            .filter(|above| above.budget.wall_time.is_some());
        for above in timed {
            let (turns, written) = clocks.entry(above.id).or_default();
            *turns += 1;
            *written = written.saturating_add(thread.metered.get());
        }
    }
    let deadline = |(id, (turns, written)): (ThreadId, (u64, u64))| {
        let thread = session.thread(id)?;
        // What is spent or closing is being stopped already.
        if exhausted(thread).is_some() || session.is_closing(id) {
            return None;
        }
        let bound = Resource::WallTime.bound(&thread.budget)?;
        let left = bound.saturating_sub(Resource::WallTime.spent(&thread.subtree_usage));
        Some((id, UnixMillis::new(written.saturating_add(left).div_ceil(turns))))
    };
    clocks.into_iter().filter_map(deadline).collect()
}

/// The threads whose turn runs: those of them that hold a slot, and the root.
fn running(session: &Session) -> impl Iterator<Item = &Arc<Thread>> {
    session
        .holding()
        .iter()
        .copied()
        .chain(session.root_id())
        .filter_map(|id| session.thread(id))
        .filter(|thread| thread.runs_turn())
}
