//! Limits on open streams. A call counts as in flight until its response begins. Afterwards a stream uses memory for as
//! long as the client reads it, so each caller has a separate limit on streams. The response body holds the slot until
//! it is dropped.
//!
//! Health and reflection stream without authentication. Their callers are counted by address in a separate pool, so
//! that they cannot use up the slots of authenticated callers.

use std::{collections::HashSet, net::IpAddr, sync::Arc};

use http::Request;
use prost::{DecodeError, Message as _};
use prost_types::{FileDescriptorSet, MethodDescriptorProto};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use crate::{
    auth::OPEN_STREAMS,
    call::overloaded,
    identity::Principal,
    owner_counts::{OwnerCounts, OwnerPermit},
    peer::Peer,
    serve_limits::ServeLimits,
};

/// The open streams by owner.
#[derive(Debug)]
pub(crate) struct StreamLimits {
    methods: HashSet<String>,
    limits: ServeLimits,
    owners: Arc<OwnerCounts<Owner>>,
    /// The slots for all unauthenticated streams together.
    strangers: Arc<Semaphore>,
}

/// The owner of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Caller(Principal),
    /// An unauthenticated caller by address. `None` if the address is unknown.
    Stranger(Option<IpAddr>),
}

/// The slot of an open stream, released on drop.
#[derive(Debug)]
pub(crate) struct StreamPermit {
    _share: OwnerPermit<Owner>,
    _among_strangers: Option<OwnedSemaphorePermit>,
}

impl StreamLimits {
    /// Creates limits for the streaming methods in the descriptors and the open methods.
    ///
    /// # Errors
    ///
    /// The descriptors cannot be decoded.
    pub(crate) fn new(descriptor_set: &[u8], limits: ServeLimits) -> Result<Self, DecodeError> {
        let strangers = limits.max_open_streams_of_strangers.min(Semaphore::MAX_PERMITS);
        Ok(Self {
            methods: methods(descriptor_set, MethodDescriptorProto::server_streaming)?,
            limits,
            owners: Arc::default(),
            strangers: Arc::new(Semaphore::new(strangers)),
        })
    }
}

/// Returns the full paths of the methods for which `streams` is true, and of the open streaming methods.
///
/// # Errors
///
/// The descriptors cannot be decoded.
pub fn methods(
    descriptor_set: &[u8],
    streams: impl Fn(&MethodDescriptorProto) -> bool,
) -> Result<HashSet<String>, DecodeError> {
    let set = FileDescriptorSet::decode(descriptor_set)?;
    let mut paths: HashSet<String> = OPEN_STREAMS.iter().map(|path| (*path).to_owned()).collect();
    for file in &set.file {
        for service in &file.service {
            let streams = service.method.iter().filter(|method| streams(method));
            paths.extend(streams.map(|method| format!("/{}.{}/{}", file.package(), service.name(), method.name())));
        }
    }
    Ok(paths)
}

impl StreamLimits {
    /// Takes a slot for the response to this call. Returns `None` if the call needs no slot.
    pub(crate) fn admit<B>(&self, request: &Request<B>) -> Result<Option<StreamPermit>, Status> {
        if !self.methods.contains(request.uri().path()) {
            return Ok(None);
        }
        let Some(caller) = request.extensions().get::<Principal>() else {
            let peer = request.extensions().get::<Peer>();
            let address = peer.and_then(|peer| peer.address).map(|address| address.ip());
            return self.admit_stranger(address).map(Some);
        };
        let (limit, max) = match caller {
            Principal::Thread(_) => ("max_open_streams_per_thread", self.limits.max_open_streams_per_thread),
            Principal::Operator { .. }
            | Principal::Runner { .. }
            | Principal::Service { .. }
            | Principal::Caller { .. } => ("max_open_streams_per_caller", self.limits.max_open_streams_per_caller),
        };
        let share = self.owners.take(&Owner::Caller(caller.clone()), max);
        share
            .map(|share| {
                Some(StreamPermit {
                    _share: share,
                    _among_strangers: None,
                })
            })
            .ok_or_else(|| overloaded("you have too many open streams", limit, max))
    }

    fn admit_stranger(&self, address: Option<IpAddr>) -> Result<StreamPermit, Status> {
        let owner = Owner::Stranger(address.map(|ip| ip.to_canonical()));
        let (max, total) = (
            self.limits.max_open_streams_per_stranger,
            self.limits.max_open_streams_of_strangers,
        );
        let share = self.owners.take(&owner, max).ok_or_else(|| {
            let text = "there are too many open streams from your address";
            overloaded(text, "max_open_streams_per_stranger", max)
        })?;
        let among = Arc::clone(&self.strangers).try_acquire_owned().map_err(|_| {
            let text = "unauthenticated callers have too many open streams";
            overloaded(text, "max_open_streams_of_strangers", total)
        })?;
        Ok(StreamPermit {
            _share: share,
            _among_strangers: Some(among),
        })
    }
}

#[cfg(test)]
impl StreamLimits {
    /// Returns whether no stream holds a slot.
    pub(crate) fn is_idle(&self) -> bool {
        self.owners.is_empty()
    }
}
