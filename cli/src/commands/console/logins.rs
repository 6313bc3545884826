//! One-time codes, the logins with these codes, and the logins by a proxy. Functions receive the time as an argument.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use svc_kit::secret::{SecretError, SecretToken};
use tokio_util::sync::CancellationToken;

use super::{methods::Access, proxy::User};

/// Time for which a code is valid.
pub(super) const CODE_LIFETIME: Duration = Duration::from_secs(60);
/// Time after which a login ends.
pub(super) const LOGIN_LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);
/// Time after which a stream through a proxy ends, so that the proxy checks the login again.
const PROXY_LOGIN_LIFETIME: Duration = Duration::from_secs(15 * 60);
/// Maximum number of logins. A further login ends the oldest one.
const MAX_LOGINS: usize = 16;
/// Maximum number of attempts to log in within [`ATTEMPT_WINDOW`].
const MAX_ATTEMPTS: usize = 20;
/// Time for which an attempt counts.
const ATTEMPT_WINDOW: Duration = Duration::from_secs(60);

/// A login. Clones end together.
#[derive(Clone, Debug)]
pub(super) struct Login {
    /// The permitted calls.
    pub(super) access: Access,
    /// The name of the person, if a proxy logged them in.
    pub(super) user: Option<String>,
    /// The time at which the login expires.
    pub(super) expires: Instant,
    /// Cancelled when the login ends before it expires.
    pub(super) ended: CancellationToken,
}

/// The reason why a code is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Rejected {
    /// The code is not the valid one.
    #[error("wrong code; open the last link that the terminal of `troupe console` shows")]
    Wrong,
    /// No code is valid: the last code has expired or was used.
    #[error("the link has expired or was used; the terminal of `troupe console` shows a new one")]
    Expired,
    /// Too many attempts.
    #[error("too many attempts to log in; try again in a minute")]
    TooMany,
}

/// An unused code.
struct Code {
    text: SecretToken,
    expires: Instant,
}

/// The code and the logins of a console.
pub(super) struct Logins {
    /// The permissions of logins with a code.
    access: Access,
    code: Option<Code>,
    /// The logins with their secrets, oldest first.
    logins: VecDeque<(SecretToken, Login)>,
    attempts: VecDeque<Instant>,
    /// Cancelled to end all logins.
    stopped: CancellationToken,
}

impl Logins {
    /// Creates the logins of a console. `stopped` ends all of them.
    pub(super) const fn new(access: Access, stopped: CancellationToken) -> Self {
        Self {
            access,
            code: None,
            logins: VecDeque::new(),
            attempts: VecDeque::new(),
            stopped,
        }
    }

    /// Replaces the code and returns the new code.
    ///
    /// # Errors
    ///
    /// Fails if the operating system returns no random bytes.
    pub(super) fn issue_code(&mut self, now: Instant) -> Result<SecretToken, SecretError> {
        let text = SecretToken::generate()?;
        self.code = Some(Code {
            text: text.clone(),
            expires: now + CODE_LIFETIME,
        });
        Ok(text)
    }

    /// Starts a login with `secret` if `candidate` is the valid code. `secret` must not belong to another login.
    ///
    /// # Errors
    ///
    /// Returns the reason why the code is rejected.
    pub(super) fn log_in(&mut self, candidate: &str, secret: SecretToken, now: Instant) -> Result<(), Rejected> {
        while self.attempts.front().is_some_and(|at| *at + ATTEMPT_WINDOW <= now) {
            self.attempts.pop_front();
        }
        if self.attempts.len() >= MAX_ATTEMPTS {
            return Err(Rejected::TooMany);
        }
        self.attempts.push_back(now);
        match self.code.take() {
            Some(code) if now < code.expires => {
                if !code.text.matches(candidate) {
                    self.code = Some(code);
                    return Err(Rejected::Wrong);
                }
            }
            _ => return Err(Rejected::Expired),
        }
        self.end_expired(now);
        if self.logins.len() >= MAX_LOGINS
            && let Some((_, oldest)) = self.logins.pop_front()
        {
            oldest.ended.cancel();
        }
        let login = Login {
            access: self.access,
            user: None,
            expires: now + LOGIN_LIFETIME,
            ended: self.stopped.child_token(),
        };
        self.logins.push_back((secret, login));
        Ok(())
    }

    /// Returns the login of one request from a proxy. The login is not stored.
    pub(super) fn of_user(&self, user: User, now: Instant) -> Login {
        Login {
            access: user.access,
            user: Some(user.name),
            expires: now + PROXY_LOGIN_LIFETIME,
            ended: self.stopped.clone(),
        }
    }

    /// Returns the login with this secret.
    pub(super) fn find(&mut self, secret: &str, now: Instant) -> Option<Login> {
        self.end_expired(now);
        let found = self.logins.iter().find(|(own, _)| own.matches(secret));
        found.map(|(_, login)| login.clone())
    }

    /// Ends the login with this secret.
    pub(super) fn log_out(&mut self, secret: &str) {
        self.retain(|own, _| !own.matches(secret));
    }

    fn end_expired(&mut self, now: Instant) {
        self.retain(|_, login| now < login.expires);
    }

    fn retain(&mut self, keep: impl Fn(&SecretToken, &Login) -> bool) {
        self.logins.retain(|(secret, login)| {
            let is_kept = keep(secret, login);
            if !is_kept {
                login.ended.cancel();
            }
            is_kept
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn logins() -> Logins {
        Logins::new(Access::Operator, CancellationToken::new())
    }

    fn secret() -> SecretToken {
        SecretToken::generate().unwrap()
    }

    fn log_in(logins: &mut Logins, code: &str, now: Instant) -> Result<SecretToken, Rejected> {
        let secret = secret();
        logins.log_in(code, secret.clone(), now).map(|()| secret)
    }

    #[test]
    fn code_is_valid_once_and_for_a_minute() {
        let (mut logins, now) = (logins(), Instant::now());
        assert_eq!(log_in(&mut logins, "", now), Err(Rejected::Expired));
        let code = logins.issue_code(now).unwrap();
        assert_eq!(log_in(&mut logins, "wrong", now), Err(Rejected::Wrong));
        let secret = log_in(
            &mut logins,
            code.expose(),
            now + CODE_LIFETIME - Duration::from_millis(1),
        )
        .unwrap();
        assert!(logins.find(secret.expose(), now).is_some());
        assert_eq!(log_in(&mut logins, code.expose(), now), Err(Rejected::Expired));
        let code = logins.issue_code(now).unwrap();
        assert_eq!(
            log_in(&mut logins, code.expose(), now + CODE_LIFETIME),
            Err(Rejected::Expired)
        );
        assert_eq!(log_in(&mut logins, code.expose(), now), Err(Rejected::Expired));
    }

    #[test]
    fn new_code_replaces_the_last_one() {
        let (mut logins, now) = (logins(), Instant::now());
        let first = logins.issue_code(now).unwrap();
        let second = logins.issue_code(now).unwrap();
        assert_eq!(log_in(&mut logins, first.expose(), now), Err(Rejected::Wrong));
        assert!(log_in(&mut logins, second.expose(), now).is_ok());
    }

    #[test]
    fn attempts_are_bounded() {
        let (mut logins, now) = (logins(), Instant::now());
        for _ in 0..MAX_ATTEMPTS {
            assert_eq!(log_in(&mut logins, "x", now), Err(Rejected::Expired));
        }
        let code = logins.issue_code(now).unwrap();
        assert_eq!(log_in(&mut logins, code.expose(), now), Err(Rejected::TooMany));
        let later = now + ATTEMPT_WINDOW;
        let code = logins.issue_code(later).unwrap();
        assert!(log_in(&mut logins, code.expose(), later).is_ok());
    }

    #[test]
    fn login_ends_by_time_and_by_logout() {
        let (mut logins, now) = (logins(), Instant::now());
        let code = logins.issue_code(now).unwrap();
        let first = log_in(&mut logins, code.expose(), now).unwrap();
        let code = logins.issue_code(now).unwrap();
        let second = log_in(&mut logins, code.expose(), now).unwrap();
        let (one, two) = (
            logins.find(first.expose(), now).unwrap(),
            logins.find(second.expose(), now).unwrap(),
        );
        logins.log_out(first.expose());
        assert!(one.ended.is_cancelled() && !two.ended.is_cancelled());
        assert!(logins.find(first.expose(), now).is_none());
        assert!(logins.find(second.expose(), now + LOGIN_LIFETIME).is_none());
        assert!(two.ended.is_cancelled());
    }

    #[test]
    fn login_of_a_proxy_ends_with_the_console() {
        let (stopped, now) = (CancellationToken::new(), Instant::now());
        let user = User {
            name: "ann".to_owned(),
            access: Access::Viewer,
        };
        let login = Logins::new(Access::Operator, stopped.clone()).of_user(user, now);
        assert_eq!((login.access, login.user.as_deref()), (Access::Viewer, Some("ann")));
        assert_eq!(login.expires, now + PROXY_LOGIN_LIFETIME);
        assert!(!login.ended.is_cancelled());
        stopped.cancel();
        assert!(login.ended.is_cancelled());
    }

    #[test]
    fn login_beyond_maximum_ends_oldest_login() {
        let (mut logins, now) = (logins(), Instant::now());
        let secrets: Vec<SecretToken> = (0..=MAX_LOGINS)
            .map(|_| {
                let code = logins.issue_code(now).unwrap();
                log_in(&mut logins, code.expose(), now).unwrap()
            })
            .collect();
        let is_found = |logins: &mut Logins, secret: &SecretToken| logins.find(secret.expose(), now).is_some();
        assert!(!is_found(&mut logins, &secrets[0]));
        assert!(secrets[1..].iter().all(|secret| is_found(&mut logins, secret)));
    }
}
