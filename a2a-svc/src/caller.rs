//! Callers: their tokens, their agents, and their rates.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use svc_kit::{identity::Principal, secret::MAX_TOKEN_BYTES};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    config::{ANONYMOUS, CallerConfig, CallerLimits},
    error::{Error, Kind, Result},
};

/// A caller of the agents.
pub(crate) struct Caller {
    config: CallerConfig,
    rate: Mutex<Bucket>,
    calls: Arc<Semaphore>,
    creating: tokio::sync::Mutex<()>,
}

/// A token bucket that holds at most the requests of one minute.
struct Bucket {
    left: f64,
    filled: Instant,
}

impl Caller {
    fn new(config: CallerConfig) -> Self {
        let calls = usize::try_from(config.limits.max_calls).unwrap_or(Semaphore::MAX_PERMITS);
        Self {
            rate: Mutex::new(Bucket {
                left: f64::from(config.limits.requests_per_minute),
                filled: Instant::now(),
            }),
            calls: Arc::new(Semaphore::new(calls.min(Semaphore::MAX_PERMITS))),
            creating: tokio::sync::Mutex::default(),
            config,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    pub(crate) const fn limits(&self) -> &CallerLimits {
        &self.config.limits
    }

    /// Returns the lock that is held while a context of the caller is created.
    pub(crate) const fn creating(&self) -> &tokio::sync::Mutex<()> {
        &self.creating
    }

    pub(crate) fn is_anonymous(&self) -> bool {
        self.config.name == ANONYMOUS
    }

    /// Returns whether the caller may use the agent.
    pub(crate) fn may_use(&self, agent: &str) -> bool {
        self.config.agents.as_ref().is_none_or(|agents| agents.contains(agent))
    }

    /// Counts a request. The permit has to be held until the call or the stream ends.
    ///
    /// # Errors
    ///
    /// The caller exceeds its rate or its number of calls.
    pub(crate) fn admit(&self, now: Instant) -> Result<OwnedSemaphorePermit> {
        let per_minute = f64::from(self.config.limits.requests_per_minute);
        {
            let mut bucket = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
            let passed = now.saturating_duration_since(bucket.filled).as_secs_f64();
            bucket.left = (bucket.left + passed * per_minute / 60.0).min(per_minute);
            bucket.filled = now;
            if bucket.left < 1.0 {
                let seconds = ((1.0 - bucket.left) * 60.0 / per_minute).ceil();
                return Err(Error::new(
                    Kind::RateLimited,
                    format!("more than {per_minute} requests in a minute; try again in {seconds} s"),
                ));
            }
            bucket.left -= 1.0;
        }
        Arc::clone(&self.calls).try_acquire_owned().map_err(|_| {
            let most = self.config.limits.max_calls;
            Error::new(
                Kind::Overloaded,
                format!("{most} calls and streams of this caller are in progress; end some of them"),
            )
        })
    }
}

/// All callers.
pub(crate) struct Callers(Vec<Arc<Caller>>);

impl Callers {
    pub(crate) fn new(configs: Vec<CallerConfig>) -> Self {
        Self(
            configs
                .into_iter()
                .map(|config| Arc::new(Caller::new(config)))
                .collect(),
        )
    }

    /// Returns the caller of a request with this `authorization` header. Without a header, the certificate of the
    /// connection names the caller. Without a certificate, the caller is anonymous.
    ///
    /// # Errors
    ///
    /// The token is missing or not valid, or the certificate names no caller.
    pub(crate) fn identify(&self, authorization: Option<&str>, certificate: Option<&Principal>) -> Result<Arc<Caller>> {
        let missing = || Error::new(Kind::Unauthenticated, "missing or invalid bearer token");
        let Some(header) = authorization else {
            let (name, error) = match certificate {
                Some(Principal::Caller { name }) if name != ANONYMOUS => (
                    name.as_str(),
                    Error::new(Kind::Unauthenticated, "the certificate names no caller of these agents"),
                ),
                _ => (ANONYMOUS, missing()),
            };
            let named = self.0.iter().find(|caller| caller.name() == name);
            return named.cloned().ok_or(error);
        };
        let (scheme, token) = header.trim().split_once(' ').ok_or_else(missing)?;
        let token = token.trim();
        if !scheme.eq_ignore_ascii_case("bearer") || token.len() > MAX_TOKEN_BYTES {
            return Err(missing());
        }
        let mut found = None;
        // Compares all tokens, so that the time does not reveal which one matches.
        for caller in &self.0 {
            let matches = caller
                .config
                .tokens
                .as_ref()
                .is_some_and(|tokens| tokens.matches(token));
            if matches {
                found = Some(Arc::clone(caller));
            }
        }
        found.ok_or_else(missing)
    }

    /// Returns whether a caller has a token.
    pub(crate) fn has_tokens(&self) -> bool {
        self.0.iter().any(|caller| caller.config.tokens.is_some())
    }

    pub(crate) fn has_anonymous(&self) -> bool {
        self.0.iter().any(|caller| caller.is_anonymous())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use svc_kit::secret::SecretToken;

    use super::*;

    fn caller(name: &str, token: Option<&str>) -> CallerConfig {
        CallerConfig {
            name: name.to_owned(),
            tokens: token.map(|token| SecretToken::parse(token).unwrap().into()),
            agents: None,
            limits: CallerLimits {
                requests_per_minute: 2,
                max_calls: 1,
                ..CallerLimits::default()
            },
        }
    }

    #[test]
    fn only_valid_token_identifies_caller() {
        let callers = Callers::new(vec![
            caller("a", Some("aaaaaaaaaaaaaaaa")),
            caller("b", Some("bbbbbbbbbbbbbbbb")),
        ]);
        assert_eq!(
            callers.identify(Some("Bearer bbbbbbbbbbbbbbbb"), None).unwrap().name(),
            "b"
        );
        assert_eq!(
            callers.identify(Some("bearer aaaaaaaaaaaaaaaa"), None).unwrap().name(),
            "a"
        );
        let long = format!("Bearer {}", "x".repeat(600));
        for header in [
            None,
            Some(""),
            Some("Bearer"),
            Some("Bearer x"),
            Some("Basic aaaaaaaaaaaaaaaa"),
            Some(&long),
        ] {
            assert_eq!(
                callers.identify(header, None).err().unwrap().kind,
                Kind::Unauthenticated,
                "{header:?}"
            );
        }
        let open = Callers::new(vec![caller("anonymous", None)]);
        assert!(open.identify(None, None).unwrap().is_anonymous());
        assert!(
            open.identify(Some("Bearer x"), None).is_err(),
            "a wrong token is never ignored"
        );
    }

    #[test]
    fn certificate_names_caller_without_token() {
        let callers = Callers::new(vec![
            caller("a", Some("aaaaaaaaaaaaaaaa")),
            caller("b", None),
            caller(ANONYMOUS, None),
        ]);
        let certificate = |name: &str| Principal::Caller { name: name.to_owned() };
        let named = |authorization, principal: &Principal| {
            let found = callers.identify(authorization, Some(principal));
            found.ok().map(|caller| caller.name().to_owned())
        };
        assert_eq!(named(None, &certificate("b")).as_deref(), Some("b"));
        assert_eq!(named(None, &certificate("a")).as_deref(), Some("a"));
        assert_eq!(
            named(Some("Bearer aaaaaaaaaaaaaaaa"), &certificate("b")).as_deref(),
            Some("a")
        );
        assert_eq!(named(None, &certificate("c")), None);
        let operator = Principal::Service {
            name: String::from("a"),
        };
        assert_eq!(named(None, &operator).as_deref(), Some(ANONYMOUS));
    }

    #[test]
    fn rate_refills_over_time() {
        let caller = Caller::new(caller("a", None));
        let now = Instant::now();
        drop(caller.admit(now).unwrap());
        drop(caller.admit(now).unwrap());
        assert_eq!(caller.admit(now).err().unwrap().kind, Kind::RateLimited);
        let held = caller.admit(now + Duration::from_secs(31)).unwrap();
        assert_eq!(
            caller.admit(now + Duration::from_secs(90)).err().unwrap().kind,
            Kind::Overloaded
        );
        drop(held);
    }
}
