//! The caller of a request: the principal that authentication determines and handlers use.
//!
//! This module contains only names and ids. The table in [`crate::auth`] decides what a principal may do. For threads,
//! the supervisor's own rules (liveness, subtree, tool policy) apply in addition.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderName, HeaderValue};
use tonic::{Code, Request, Status};
use troupe_proto::{fault::Fault, reason::Reason};
use uuid::Uuid;

/// Maximum length of a principal's name in a token or a certificate, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 128;

/// The header with the caller of a call that one member of a cluster forwards to another.
pub const FORWARDED_FOR: HeaderName = HeaderName::from_static("troupe-principal");

/// Marks a request that another member of the cluster forwarded. Such a request is not forwarded again, and not logged
/// as a new call.
#[derive(Clone, Copy, Debug)]
pub struct Forwarded;

/// Characters allowed in a name in addition to ASCII letters and digits.
pub(crate) const NAME_MARKS: &str = "._-:@/|+=,~";

/// Returns whether identity providers, certificates and grants may use this name: up to 128 ASCII letters, digits and
/// `._-:@/|+=,~`, so that no two names look alike in a log. Service account names, e-mail addresses, UUIDs and provider
/// prefixes (`auth0|...`) are all valid.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || NAME_MARKS.contains(c);
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.chars().all(fits)
}

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Principal {
    /// A person or their tool.
    Operator {
        /// The name in logs and events.
        name: String,
        /// The operator's permissions.
        role: OperatorRole,
    },
    /// An agent's thread, identified by the token that it received at its start.
    Thread(ThreadPrincipal),
    /// A process that executes threads.
    Runner {
        /// The name that logs show.
        name: String,
        /// The ids that it may use.
        ids: RunnerIds,
    },
    /// Another service of Troupe: the supervisor at the registry.
    Service {
        /// The name that logs show.
        name: String,
    },
    /// A caller of exported agents, known to the A2A port only. The supervisor and the registry reject its calls.
    Caller {
        /// The name in the configuration of the A2A port.
        name: String,
    },
}

/// The runner ids under which a runner may attach.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RunnerIds {
    /// Any id. Several runners may share a token.
    Any,
    /// The name of the pod to which the token of its service account is bound.
    Pod(String),
    /// The name in its certificate, and ids that begin with this name and `-`: several runners may share a certificate.
    Certificate(String),
}

impl RunnerIds {
    /// Checks that the runner may attach under this id.
    ///
    /// # Errors
    ///
    /// The id belongs to another runner. The text names the permitted ids.
    pub fn check(&self, id: &str) -> Result<(), String> {
        match self {
            Self::Any => Ok(()),
            Self::Pod(pod) if pod == id => Ok(()),
            Self::Pod(pod) => Err(format!(
                "the token belongs to the pod {pod:?}; use its name as --runner-id"
            )),
            Self::Certificate(name) => match id.strip_prefix(name.as_str()) {
                Some(rest) if rest.is_empty() || rest.starts_with('-') => Ok(()),
                Some(_) | None => Err(format!(
                    "the certificate belongs to {name:?}; use it as --runner-id, or an id that begins with \"{name}-\""
                )),
            },
        }
    }
}

/// The permissions of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperatorRole {
    /// Full access.
    Admin,
    /// Read access; sees digests instead of prompts.
    Viewer,
}

/// A thread as named by its token. Only the thread's session knows whether the generation is current.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadPrincipal {
    /// The session that the thread belongs to.
    pub session: Uuid,
    /// The thread itself.
    pub thread: Uuid,
    /// The generation that the token was created for; tokens of older generations are stale.
    pub generation: u32,
}

impl Principal {
    /// Returns the kind of principal in one or two words, for messages and logs.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Operator {
                role: OperatorRole::Admin,
                ..
            } => "operator (admin)",
            Self::Operator {
                role: OperatorRole::Viewer,
                ..
            } => "operator (viewer)",
            Self::Thread(_) => "thread",
            Self::Runner { .. } => "runner",
            Self::Service { .. } => "service",
            Self::Caller { .. } => "A2A caller",
        }
    }

    /// Returns a stable text that scopes a caller's request ids: `operator:local`, `thread:<id>`.
    ///
    /// It omits a thread's generation and an operator's role: a retry after a restart or a change of role still comes
    /// from the same caller.
    #[must_use]
    pub fn scope_key(&self) -> String {
        match self {
            Self::Operator { name, .. } => format!("operator:{name}"),
            Self::Thread(thread) => format!("thread:{}", thread.thread),
            Self::Runner { name, .. } => format!("runner:{name}"),
            Self::Service { name } => format!("service:{name}"),
            Self::Caller { name } => format!("caller:{name}"),
        }
    }

    /// Encodes the principal for [`FORWARDED_FOR`]. The ids of a runner are left out: the member that forwards a call
    /// has checked them.
    #[must_use]
    pub fn to_header(&self) -> HeaderValue {
        let (kind, name) = match self {
            Self::Operator { name, role } => match role {
                OperatorRole::Admin => ("admin", name),
                OperatorRole::Viewer => ("viewer", name),
            },
            Self::Runner { name, .. } => ("runner", name),
            Self::Service { name } => ("service", name),
            Self::Caller { name } => ("caller", name),
            Self::Thread(thread) => {
                let text = format!("thread.{}.{}.{}", thread.session, thread.thread, thread.generation);
                // Ids and numbers are visible ASCII.
                return HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""));
            }
        };
        let text = format!("{kind}.{}", URL_SAFE_NO_PAD.encode(name));
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
    }

    /// Decodes the value of [`FORWARDED_FOR`].
    #[must_use]
    pub fn from_header(value: &HeaderValue) -> Option<Self> {
        let (kind, rest) = value.to_str().ok()?.split_once('.')?;
        if kind == "thread" {
            let mut parts = rest.split('.');
            let (session, thread, generation, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next())
            else {
                return None;
            };
            return Some(Self::Thread(ThreadPrincipal {
                session: Uuid::parse_str(session).ok()?,
                thread: Uuid::parse_str(thread).ok()?,
                generation: generation.parse().ok()?,
            }));
        }
        let name = String::from_utf8(URL_SAFE_NO_PAD.decode(rest).ok()?).ok()?;
        Self::named(kind, name, RunnerIds::Any)
    }

    /// Returns the principal of a kind, which has the name that headers and certificates use. `None` if the kind is
    /// unknown. Only runners use `ids`.
    pub(crate) fn named(kind: &str, name: String, ids: RunnerIds) -> Option<Self> {
        let operator = |name, role| Self::Operator { name, role };
        Some(match kind {
            "admin" => operator(name, OperatorRole::Admin),
            "viewer" => operator(name, OperatorRole::Viewer),
            "runner" => Self::Runner { name, ids },
            "service" => Self::Service { name },
            "caller" => Self::Caller { name },
            _ => return None,
        })
    }

    /// Returns the thread if the caller is a thread.
    #[must_use]
    pub const fn thread(&self) -> Option<&ThreadPrincipal> {
        match self {
            Self::Thread(thread) => Some(thread),
            Self::Operator { .. } | Self::Runner { .. } | Self::Service { .. } | Self::Caller { .. } => None,
        }
    }

    /// Returns whether the caller is an operator with full access.
    #[must_use]
    pub const fn is_admin(&self) -> bool {
        matches!(
            self,
            Self::Operator {
                role: OperatorRole::Admin,
                ..
            }
        )
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.scope_key())
    }
}

/// Returns the caller of a request, as stored by the authentication layer.
///
/// # Errors
///
/// INTERNAL if the request never passed [`crate::auth::AuthLayer`], which is a wiring defect.
pub fn principal_of<T>(request: &Request<T>) -> Result<&Principal, Status> {
    request.extensions().get::<Principal>().ok_or_else(|| {
        tracing::error!("a request reached a handler without a principal");
        Fault::new(
            Code::Internal,
            Reason::Internal,
            "the caller of this request is unknown to the service; the log has the details",
        )
        .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_names_are_valid_and_lookalikes_are_not() {
        let longest = "x".repeat(MAX_NAME_BYTES);
        for name in [
            "ann",
            "auth0|5f7c8ec7c33c6c004bbafe82",
            "system:serviceaccount:troupe:troupe-runner",
            "ann.o-neil+ops@example.org",
            "0f8fad5b-d9cb-469f-a165-70867728950e",
            "repo:example/troupe:ref:refs/heads/main",
            "CN=ann,OU=ops",
            "AAAAAAAAAAAAAAAAAAAAAIkzqFVrSaSaFHy782bbtaQ=",
            "https://example.org/~ann",
            &longest,
        ] {
            assert!(is_name(name), "{name}");
        }
        for name in [
            "",
            " ",
            "local ",
            " local",
            "a b",
            "a\tb",
            "a\nb",
            "local\u{200b}",
            "l\u{43e}cal",
            "\u{feff}local",
            "ann\u{301}",
            "a\u{202e}b",
            "a?b",
            "a#b",
            "a%20b",
            "a\"b",
            "a\\b",
            "a;b",
            &format!("{longest}x"),
        ] {
            assert!(!is_name(name), "{name:?}");
        }
    }

    #[test]
    fn scope_keys_are_stable_and_distinct() {
        let thread = ThreadPrincipal {
            session: Uuid::from_u128(1),
            thread: Uuid::from_u128(2),
            generation: 3,
        };
        let older = ThreadPrincipal {
            generation: 2,
            ..thread
        };
        let named = |role| Principal::Operator {
            name: "local".to_owned(),
            role,
        };
        assert_eq!(
            Principal::Thread(thread).scope_key(),
            "thread:00000000-0000-0000-0000-000000000002"
        );
        assert_eq!(
            Principal::Thread(thread).scope_key(),
            Principal::Thread(older).scope_key()
        );
        assert_eq!(named(OperatorRole::Admin).scope_key(), "operator:local");
        assert_eq!(
            named(OperatorRole::Admin).scope_key(),
            named(OperatorRole::Viewer).scope_key()
        );
        let runner = Principal::Runner {
            name: "local".to_owned(),
            ids: RunnerIds::Any,
        };
        assert_eq!(runner.scope_key(), "runner:local");
        let service = Principal::Service {
            name: "local".to_owned(),
        };
        assert_eq!(service.scope_key(), "service:local");
    }

    #[test]
    fn principals_survive_their_header() {
        let operator = |role| Principal::Operator {
            name: "ann \u{fc}.b".to_owned(),
            role,
        };
        let name = "local".to_owned();
        for principal in [
            operator(OperatorRole::Admin),
            operator(OperatorRole::Viewer),
            Principal::Runner {
                name: name.clone(),
                ids: RunnerIds::Any,
            },
            Principal::Service { name: name.clone() },
            Principal::Caller { name },
            Principal::Thread(ThreadPrincipal {
                session: Uuid::from_u128(1),
                thread: Uuid::from_u128(2),
                generation: 3,
            }),
        ] {
            assert_eq!(Principal::from_header(&principal.to_header()), Some(principal));
        }
        for text in ["", "admin", "root.YQ", "admin.?", "thread.1.2.3", "admin._w"] {
            assert_eq!(Principal::from_header(&HeaderValue::from_static(text)), None, "{text}");
        }
    }

    #[test]
    fn certificate_and_pod_bind_runner_ids() {
        let ids = ["box", "box-1", "box1", "bo", "other-box", "", "Box"];
        let allowed = |by: &RunnerIds| ids.into_iter().filter(|id| by.check(id).is_ok()).collect::<Vec<_>>();
        assert_eq!(allowed(&RunnerIds::Any), ids);
        assert_eq!(allowed(&RunnerIds::Pod("box".to_owned())), ["box"]);
        assert_eq!(allowed(&RunnerIds::Certificate("box".to_owned())), ["box", "box-1"]);
    }

    #[test]
    fn request_without_principal_is_rejected() {
        let status = principal_of(&Request::new(())).unwrap_err();
        assert_eq!(status.code(), Code::Internal);
    }

    #[test]
    fn principal_of_request_is_returned() {
        let principal = Principal::Service { name: "box".to_owned() };
        let mut request = Request::new(());
        request.extensions_mut().insert(principal.clone());
        assert_eq!(principal_of(&request).unwrap(), &principal);
    }
}
