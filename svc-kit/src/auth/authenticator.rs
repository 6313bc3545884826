//! Finds the caller by a token, by the certificate of the connection, or by the address of the connection.

use std::{net::IpAddr, sync::Arc};

use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use troupe_client::host::is_loopback;

use crate::{
    bounded::Bounded,
    identity::{FORWARDED_FOR, OperatorRole, Principal, RunnerIds},
    jwt::Jwt,
    peer::Peer,
    secret::MAX_SHOWN_BYTES,
    thread_token::TokenKeys,
    token_file::Tokens,
};

/// Headers that proxies set. If one of these headers is present, the address of the connection is not the caller's
/// address.
const FORWARDED: &[&str] = &["forwarded", "x-forwarded-for", "x-real-ip"];

/// Operator names that this service assigns: to static tokens and to callers that need no token. No identity provider
/// or certificate authority may use them.
const OWN_OPERATORS: &[&str] = &["local", LOOPBACK, ANONYMOUS];
const LOOPBACK: &str = "loopback";
const ANONYMOUS: &str = "anonymous";

/// Which callers are operators without a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// No callers.
    #[default]
    Nobody,
    /// Callers from loopback. Used if no agent programs run on this machine, or if the user requested this trust.
    Loopback,
    /// All callers from any address: `--insecure` is set and no authentication is configured. The token that a service
    /// generates itself is not required.
    Everybody,
}

impl Trust {
    /// Returns the trust of a service. Configured authentication overrides `--insecure`, so a leftover `--insecure`
    /// flag has no effect.
    #[must_use]
    pub const fn of(authentication: bool, insecure: bool) -> Self {
        match (authentication, insecure) {
            (true, _) => Self::Nobody,
            (false, true) => Self::Everybody,
            (false, false) => Self::Loopback,
        }
    }
}

/// Finds the principal of a call.
#[derive(Debug, Default)]
pub struct Authenticator {
    secrets: Vec<(Tokens, Principal)>,
    threads: Option<Arc<TokenKeys>>,
    /// The token with which the other members of the cluster forward calls.
    members: Option<Tokens>,
    jwt: Option<Arc<Jwt>>,
    trust: Trust,
    /// Rate limit of log lines about names that are reserved for this service.
    taken_names: Bounded,
}

impl Authenticator {
    /// Creates an authenticator that accepts no callers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Accepts `tokens` as those of an operator.
    #[must_use]
    pub fn operator(self, name: impl Into<String>, role: OperatorRole, tokens: impl Into<Tokens>) -> Self {
        let name = name.into();
        self.secret(tokens, Principal::Operator { name, role })
    }

    /// Accepts `tokens` as those of a runner.
    #[must_use]
    pub fn runner(self, name: impl Into<String>, tokens: impl Into<Tokens>) -> Self {
        let name = name.into();
        let ids = RunnerIds::Any;
        self.secret(tokens, Principal::Runner { name, ids })
    }

    /// Accepts `tokens` as those of another service.
    #[must_use]
    pub fn service(self, name: impl Into<String>, tokens: impl Into<Tokens>) -> Self {
        let name = name.into();
        self.secret(tokens, Principal::Service { name })
    }

    /// Accepts the thread tokens of these keys.
    #[must_use]
    pub fn threads(mut self, keys: Arc<TokenKeys>) -> Self {
        self.threads = Some(keys);
        self
    }

    /// Accepts calls that other members of the cluster forward with this token. A forwarded call names the caller for
    /// which it is made.
    #[must_use]
    pub fn members(mut self, token: impl Into<Tokens>) -> Self {
        self.members = Some(token.into());
        self
    }

    /// Accepts tokens of an identity provider. Claims and grants determine the principal.
    #[must_use]
    pub fn jwt(mut self, jwt: Option<Arc<Jwt>>) -> Self {
        self.jwt = jwt;
        self
    }

    /// Sets which callers are operators without a token. The default is [`Trust::Nobody`].
    #[must_use]
    pub fn trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// Finds the caller from the headers of the call and from the connection. `None` means UNAUTHENTICATED.
    ///
    /// A token that is present is never ignored: a call with a bad token is rejected even if callers without a token
    /// are trusted. Without a token, the certificate of the connection determines the caller.
    #[must_use]
    pub fn authenticate(&self, headers: &HeaderMap, peer: &Peer) -> Option<Principal> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        match (values.next(), values.next()) {
            (None, _) => match &peer.principal {
                Some(principal) => self.vouched((**principal).clone()),
                None => self.without_token(headers, peer.address.map(|address| address.ip())),
            },
            (Some(_), None) if self.is_forwarded(headers) => Principal::from_header(headers.get(FORWARDED_FOR)?),
            (Some(value), None) => self.by_token(bearer(value)?),
            (Some(_), Some(_)) => None,
        }
    }

    /// Returns whether another member of the cluster forwards the call.
    pub(super) fn is_forwarded(&self, headers: &HeaderMap) -> bool {
        let Some(members) = &self.members else {
            return false;
        };
        let token = headers.get(AUTHORIZATION).and_then(bearer);
        token.is_some_and(|token| members.matches(token))
    }

    fn secret(mut self, tokens: impl Into<Tokens>, principal: Principal) -> Self {
        self.secrets.push((tokens.into(), principal));
        self
    }

    fn by_token(&self, token: &str) -> Option<Principal> {
        let mut found = None;
        // Compare every secret, even after a match, so that the duration does not reveal which secret matched.
        for (tokens, principal) in &self.secrets {
            if tokens.matches(token) {
                found = Some(principal);
            }
        }
        found
            .cloned()
            .or_else(|| self.threads.as_ref()?.verify(token).map(Principal::Thread))
            .or_else(|| self.vouched(self.jwt.as_ref()?.verify(token)?))
    }

    /// Returns a principal that an identity provider or a certificate authority named. Returns `None` if its name is
    /// the name of an operator of this service, ignoring case: the two operators would share request ids and look alike
    /// in logs and events.
    fn vouched(&self, principal: Principal) -> Option<Principal> {
        let Principal::Operator { name, .. } = &principal else {
            return Some(principal);
        };
        let is_taken = |taken: &str| taken.eq_ignore_ascii_case(name);
        let is_own = |own: &Principal| matches!(own, Principal::Operator { name: taken, .. } if is_taken(taken));
        if OWN_OPERATORS.iter().any(|taken| is_taken(taken)) || self.secrets.iter().any(|(_, own)| is_own(own)) {
            self.taken_names.write(|passed_over| {
                tracing::warn!(
                    operator = name.as_str(),
                    passed_over,
                    "a JWT or a certificate is rejected: its name is reserved for an operator of this service"
                );
            });
            return None;
        }
        Some(principal)
    }

    fn without_token(&self, headers: &HeaderMap, peer: Option<IpAddr>) -> Option<Principal> {
        let name = match self.trust {
            Trust::Nobody => return None,
            Trust::Everybody => ANONYMOUS,
            Trust::Loopback => {
                let direct = !FORWARDED.iter().any(|name| headers.contains_key(*name));
                (direct && peer.is_some_and(is_loopback)).then_some(LOOPBACK)?
            }
        };
        Some(Principal::Operator {
            name: name.to_owned(),
            role: OperatorRole::Admin,
        })
    }
}

/// Returns the token of an `authorization` value; `None` if it is not a single bearer token of bounded length.
fn bearer(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && (1..=MAX_SHOWN_BYTES).contains(&token.len())).then_some(token)
}
