//! Who calls: by a token, by the certificate of the connection, or by where the call comes from.

use std::{net::IpAddr, sync::Arc};

use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};

use crate::{
    bounded::Bounded,
    identity::{OperatorRole, Principal},
    jwt::Jwt,
    listen::is_loopback,
    peer::Peer,
    secret::MAX_SHOWN_BYTES,
    thread_token::TokenKeys,
    token_file::Tokens,
};

/// Set by proxies: a call that carries one does not come from where its connection comes from.
const FORWARDED: &[&str] = &["forwarded", "x-forwarded-for", "x-real-ip"];

/// Operators that no provider and no authority vouches for: of a static token, and those who need none.
const OWN_OPERATORS: &[&str] = &["local", LOOPBACK, ANONYMOUS];
const LOOPBACK: &str = "loopback";
const ANONYMOUS: &str = "anonymous";

/// Who is an operator without a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Nobody.
    #[default]
    Nobody,
    /// Callers from loopback: where no agent's programs run on this machine, or the user asked for it.
    Loopback,
    /// Everybody, from anywhere: `--insecure` was spelled out, and nothing was configured by which people are known. A
    /// token that a service makes by itself is not asked for.
    Everybody,
}

impl Trust {
    /// Whom a service trusts that asks its callers who they are, or does not. What was configured wins over
    /// `--insecure`, so that one which was left behind opens nothing.
    #[must_use]
    pub const fn of(asks: bool, insecure: bool) -> Self {
        match (asks, insecure) {
            (true, _) => Self::Nobody,
            (false, true) => Self::Everybody,
            (false, false) => Self::Loopback,
        }
    }
}

/// Finds the principal behind a call.
#[derive(Debug, Default)]
pub struct Authenticator {
    secrets: Vec<(Tokens, Principal)>,
    threads: Option<Arc<TokenKeys>>,
    jwt: Option<Arc<Jwt>>,
    trust: Trust,
    /// Lines about names that are this service's own.
    taken_names: Bounded,
}

impl Authenticator {
    /// One that knows nobody and trusts nobody.
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
        self.secret(tokens, Principal::Runner { name })
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

    /// Accepts the tokens of an identity provider as those of whom their claims and the grants name.
    #[must_use]
    pub fn jwt(mut self, jwt: Option<Arc<Jwt>>) -> Self {
        self.jwt = jwt;
        self
    }

    /// Who is an operator without a token; nobody unless said here.
    #[must_use]
    pub fn trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// The caller, from the headers of the call and its connection; `None` is UNAUTHENTICATED. A token that is there is
    /// never ignored: a bad one is refused where none would be trusted. Without one the certificate of the connection
    /// counts.
    #[must_use]
    pub fn authenticate(&self, headers: &HeaderMap, peer: &Peer) -> Option<Principal> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        match (values.next(), values.next()) {
            (None, _) => match &peer.principal {
                Some(principal) => self.vouched((**principal).clone()),
                None => self.without_token(headers, peer.address.map(|address| address.ip())),
            },
            (Some(value), None) => self.by_token(bearer(value)?),
            (Some(_), Some(_)) => None,
        }
    }

    fn secret(mut self, tokens: impl Into<Tokens>, principal: Principal) -> Self {
        self.secrets.push((tokens.into(), principal));
        self
    }

    fn by_token(&self, token: &str) -> Option<Principal> {
        let mut found = None;
        // Every secret is compared, whichever matches, so the time tells nothing.
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

    /// Whom a provider or an authority vouches for, unless the name is that of an operator of this service's own, in upper or
    /// lower case: the two would share request ids, or look like one in logs and events.
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
                    "a JWT or a certificate is refused: this service has an operator of that name itself"
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

/// The token of an `authorization` value; `None` if it is not one bearer token of a bounded length.
fn bearer(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && (1..=MAX_SHOWN_BYTES).contains(&token.len())).then_some(token)
}
