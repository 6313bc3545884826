//! Connections to the other members.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use supervisor_log::store::{Member, MemberId};
use svc_kit::{
    identity::{FORWARDED_FOR, Principal},
    tls::{self, ClientFiles},
};
use tonic::transport::{Channel, Endpoint};

/// How long a connection attempt may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);

/// Interval of the pings that find a peer that no longer answers, and the time for their answer.
const PING_EVERY: Duration = Duration::from_secs(2);
const PING_ANSWER: Duration = Duration::from_secs(2);

/// Flow control window of a connection and of each of its streams, in bytes.
const WINDOW: u32 = 1024 * 1024;

/// Connections to the other members, each opened when it is first needed.
#[derive(Debug)]
pub(super) struct Peers {
    tls: ClientFiles,
    /// The value of the authorization header that the members of this cluster accept.
    token: Option<HeaderValue>,
    // Held for look-ups only, never across an await.
    channels: Mutex<HashMap<MemberId, Channel>>,
}

impl Peers {
    /// Creates a set without connections.
    pub fn new(tls: ClientFiles, token: &str) -> Self {
        let token = HeaderValue::from_str(&format!("Bearer {token}")).ok();
        Self {
            tls,
            token: token.map(|mut token| {
                token.set_sensitive(true);
                token
            }),
            channels: Mutex::default(),
        }
    }

    /// Returns a channel to a member. Returns `None` if its address is invalid.
    pub fn channel(&self, member: &Member) -> Option<Channel> {
        if let Some(channel) = self.lock().get(&member.id) {
            return Some(channel.clone());
        }
        let endpoint = Endpoint::from_shared(member.info.address.clone()).ok()?;
        let endpoint = endpoint
            .connect_timeout(CONNECT_WITHIN)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_ANSWER)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(4 * WINDOW);
        let channel = tls::channel(&endpoint, &self.tls);
        self.lock().insert(member.id, channel.clone());
        Some(channel)
    }

    /// Closes the connections to members that are gone.
    pub fn forget(&self, gone: &[MemberId]) {
        self.lock().retain(|member, _| !gone.contains(member));
    }

    /// Adds the credentials with which a peer accepts a call on behalf of its caller.
    pub fn sign(&self, headers: &mut HeaderMap, caller: &Principal) {
        if let Some(token) = &self.token {
            headers.insert(AUTHORIZATION, token.clone());
        }
        headers.insert(FORWARDED_FOR, caller.to_header());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<MemberId, Channel>> {
        // Each change to the map is a single call, so the map stays consistent after a panic.
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
