//! Connections to the other members.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use supervisor_log::store::{Member, MemberId};
use svc_kit::{
    identity::{FORWARDED_FOR, Principal},
    lock::lock,
};
use tonic::{
    metadata::MetadataMap,
    transport::{Channel, Endpoint},
};
use troupe_client::tls::{self, ClientFiles};

use super::{link::Link, own_caller};

/// How long a connection attempt may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);

/// Interval of the pings that detect a peer that no longer answers.
const PING_EVERY: Duration = Duration::from_secs(2);
/// Maximum time for the answer to a ping.
const PING_ANSWER: Duration = Duration::from_secs(2);

/// Flow control window of a stream, in bytes. The window of a connection is four times as large.
const WINDOW: u32 = 1024 * 1024;

/// Creates the channel to another member from the member's address. A channel connects when it is first needed, and
/// again when the connection is lost. Cheap to clone.
#[derive(Clone)]
pub struct PeerConnector(Arc<Connect>);

type Connect = dyn Fn(&str) -> Option<Channel> + Send + Sync;

impl PeerConnector {
    /// Creates a connector that uses TCP, and TLS if the address requires it. Certificates must have the name
    /// `server_name`. If it is `None`, they must have the host of the address.
    #[must_use]
    pub fn new(tls: ClientFiles, server_name: Option<String>) -> Self {
        Self::over(move |address| {
            let endpoint = Endpoint::from_shared(address.to_owned()).ok()?;
            let endpoint = endpoint
                .connect_timeout(CONNECT_WITHIN)
                .tcp_nodelay(true)
                .http2_keep_alive_interval(PING_EVERY)
                .keep_alive_timeout(PING_ANSWER)
                .initial_stream_window_size(WINDOW)
                .initial_connection_window_size(4 * WINDOW);
            Some(match &server_name {
                Some(name) => tls::channel_to(&endpoint, &tls, name),
                None => tls::channel(&endpoint, &tls),
            })
        })
    }

    /// Creates a connector that uses the channels of `connect`; `None` means that the address is invalid.
    pub fn over(connect: impl Fn(&str) -> Option<Channel> + Send + Sync + 'static) -> Self {
        Self(Arc::new(connect))
    }
}

impl fmt::Debug for PeerConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerConnector").finish_non_exhaustive()
    }
}

/// Connections to the other members, each opened when it is first needed.
#[derive(Debug)]
pub(super) struct Peers {
    connector: PeerConnector,
    /// The value of the authorization header that the members of this cluster accept.
    token: Option<HeaderValue>,
    // Held for look-ups only, never across an await.
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    channels: HashMap<MemberId, Channel>,
    links: HashMap<MemberId, Link>,
}

impl Peers {
    /// Creates a set without connections.
    pub fn new(connector: PeerConnector, token: &str) -> Self {
        let token = HeaderValue::from_str(&format!("Bearer {token}")).ok();
        Self {
            connector,
            token: token.map(|mut token| {
                token.set_sensitive(true);
                token
            }),
            open: Mutex::default(),
        }
    }

    /// Returns a channel to a member. Returns `None` if its address is invalid.
    pub fn channel(&self, member: &Member) -> Option<Channel> {
        if let Some(channel) = lock(&self.open).channels.get(&member.id) {
            return Some(channel.clone());
        }
        let channel = (self.connector.0)(&member.info.address)?;
        lock(&self.open).channels.insert(member.id, channel.clone());
        Some(channel)
    }

    /// Returns the stream for short calls to a member. Opens it if it is not open. Returns `None` if the member's
    /// address is invalid.
    pub fn link(&self, member: &Member) -> Option<Link> {
        let link = |open: &Open| open.links.get(&member.id).filter(|link| !link.is_closed()).cloned();
        if let Some(link) = link(&lock(&self.open)) {
            return Some(link);
        }
        let channel = self.channel(member)?;
        let mut headers = HeaderMap::new();
        self.sign(&mut headers, &own_caller());
        let mut open = lock(&self.open);
        // Another call may have opened the link in the meantime.
        let link = link(&open).unwrap_or_else(|| Link::open(channel, MetadataMap::from_headers(headers)));
        open.links.insert(member.id, link.clone());
        Some(link)
    }

    /// Closes the connections to members that are gone.
    pub fn forget(&self, gone: &[MemberId]) {
        let mut open = lock(&self.open);
        open.channels.retain(|member, _| !gone.contains(member));
        open.links.retain(|member, _| !gone.contains(member));
    }

    /// Adds the credentials with which a peer accepts a call on behalf of its caller.
    pub fn sign(&self, headers: &mut HeaderMap, caller: &Principal) {
        if let Some(token) = &self.token {
            headers.insert(AUTHORIZATION, token.clone());
        }
        headers.insert(FORWARDED_FOR, caller.to_header());
    }
}
