//! Limits on calls whose response has not begun. Each caller has a limit, and each class of callers has a limit, so
//! that threads cannot use up the slots of operators, runners and services. Methods that may block for minutes have
//! separate pools.

use std::{collections::HashSet, sync::Arc};

use http::Request;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use crate::{
    call::overloaded,
    identity::Principal,
    owner_counts::{OwnerCounts, OwnerPermit},
    serve_limits::ServeLimits,
};

/// The limits on calls of a server.
#[derive(Debug)]
pub(crate) struct CallLimits {
    waiting: HashSet<&'static str>,
    calls: Classes,
    waits: Classes,
}

/// The pools for one kind of call.
#[derive(Debug)]
struct Classes {
    trusted: Pool,
    threads: Pool,
}

/// The slots for calls from one class of callers.
#[derive(Debug)]
struct Pool {
    per_caller: Bound,
    total: Bound,
    callers: Arc<OwnerCounts<Principal>>,
    slots: Arc<Semaphore>,
}

/// A limit and its name in errors.
#[derive(Clone, Copy, Debug)]
struct Bound {
    name: &'static str,
    max: usize,
}

/// The slot of a call, released on drop.
#[derive(Debug)]
pub(crate) struct CallPermit {
    _of_caller: OwnerPermit<Principal>,
    _of_all: OwnedSemaphorePermit,
}

impl Pool {
    fn new(per_caller: Bound, total: Bound) -> Self {
        Self {
            per_caller,
            total,
            callers: Arc::default(),
            slots: Arc::new(Semaphore::new(total.max.min(Semaphore::MAX_PERMITS))),
        }
    }

    fn take(&self, caller: &Principal) -> Result<CallPermit, Status> {
        let of_caller = self.callers.take(caller, self.per_caller.max);
        let of_caller = of_caller.ok_or_else(|| {
            let text = "you have too many calls in flight";
            overloaded(text, self.per_caller.name, self.per_caller.max)
        })?;
        let of_all = Arc::clone(&self.slots).try_acquire_owned();
        let of_all = of_all.map_err(|_| overloaded("too many calls are in flight", self.total.name, self.total.max))?;
        Ok(CallPermit {
            _of_caller: of_caller,
            _of_all: of_all,
        })
    }
}

/// Creates a pool from two fields of the limits.
macro_rules! pool {
    ($limits:ident.$per_caller:ident of $total:ident) => {
        Pool::new(
            Bound {
                name: stringify!($per_caller),
                max: $limits.$per_caller,
            },
            Bound {
                name: stringify!($total),
                max: $limits.$total,
            },
        )
    };
}

impl CallLimits {
    /// Creates pools of these sizes. `waiting` contains the full paths of the methods that may block.
    pub(crate) fn new(limits: &ServeLimits, waiting: impl IntoIterator<Item = &'static str>) -> Self {
        Self {
            waiting: waiting.into_iter().collect(),
            calls: Classes {
                trusted: pool!(limits.max_calls_per_caller of max_calls_in_flight),
                threads: pool!(limits.max_calls_per_thread of max_calls_of_threads),
            },
            waits: Classes {
                trusted: pool!(limits.max_waits_per_caller of max_waits),
                threads: pool!(limits.max_waits_per_thread of max_waits_of_threads),
            },
        }
    }

    /// Takes a slot for this call. Returns `None` for health and reflection, which have no caller and need no slot.
    pub(crate) fn admit<B>(&self, request: &Request<B>) -> Result<Option<CallPermit>, Status> {
        let Some(caller) = request.extensions().get::<Principal>() else {
            return Ok(None);
        };
        let waits = self.waiting.contains(request.uri().path());
        let classes = if waits { &self.waits } else { &self.calls };
        let pool = match caller {
            Principal::Thread(_) => &classes.threads,
            Principal::Operator { .. }
            | Principal::Runner { .. }
            | Principal::Service { .. }
            | Principal::Caller { .. } => &classes.trusted,
        };
        pool.take(caller).map(Some)
    }
}

#[cfg(test)]
impl CallLimits {
    /// Returns whether no call holds a slot.
    pub(crate) fn is_idle(&self) -> bool {
        [&self.calls, &self.waits]
            .iter()
            .flat_map(|classes| [&classes.trusted, &classes.threads])
            .all(|pool| pool.callers.is_empty() && pool.slots.available_permits() == pool.total.max)
    }
}
