//! Maps the subject of a JWT to a role. A claim of the provider or the name of the subject grants an operator role.
//! Only the name of the subject grants the role of a runner or a service, because the administrators of groups must not
//! be able to appoint runners.

use std::{fmt, str::FromStr};

use serde_json::{Map, Value};

use crate::identity::{OperatorRole, Principal, RunnerIds, is_name};

/// Name of the role claim if the options set none.
const CLAIM: &str = "troupe_role";
/// Prefix of a subject in place of a claim value.
const SUBJECT: &str = "sub:";

/// A part of Troupe that calls another part with a JWT. In Kubernetes, this JWT is the token of the part's service
/// account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// A runner that calls the supervisor.
    Runner,
    /// A service that calls another one: the supervisor calls the registry.
    Service,
}

impl Machine {
    fn principal(self, name: String, claims: &Map<String, Value>) -> Principal {
        match self {
            Self::Runner => Principal::Runner {
                name,
                ids: pod(claims).map_or(RunnerIds::Any, |pod| RunnerIds::Pod(pod.to_owned())),
            },
            Self::Service => Principal::Service { name },
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Runner => "runner",
            Self::Service => "service",
        })
    }
}

/// The role of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A person or their tool.
    Operator(OperatorRole),
    /// A part of Troupe.
    Machine(Machine),
}

impl Role {
    /// Returns the principal with this role and this name. `claims` are the claims of its token.
    pub(crate) fn principal(self, name: String, claims: &Map<String, Value>) -> Principal {
        match self {
            Self::Operator(role) => Principal::Operator { name, role },
            Self::Machine(machine) => machine.principal(name, claims),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator(OperatorRole::Admin) => out.write_str("admin"),
            Self::Operator(OperatorRole::Viewer) => out.write_str("viewer"),
            Self::Machine(machine) => fmt::Display::fmt(machine, out),
        }
    }
}

/// Returns the pod to which a token of a Kubernetes service account is bound.
fn pod(claims: &Map<String, Value>) -> Option<&str> {
    claims.get("kubernetes.io")?.get("pod")?.get("name")?.as_str()
}

/// A grant of a role: `VALUE=ROLE`, or `sub:SUBJECT=ROLE`. The value may contain `=`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// Grants a role to all subjects whose claim is this text, or a list that contains it.
    Value { value: String, role: OperatorRole },
    /// Grants a role to this subject.
    Subject { subject: String, role: Role },
}

impl FromStr for Grant {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        const WRONG: &str = "write VALUE=ROLE or sub:SUBJECT=ROLE, where ROLE is admin or viewer, or for a subject also \
                             runner or service";
        const SUBJECTS_ONLY: &str = "only subjects can have the roles runner and service: write sub:SUBJECT=ROLE";
        const NO_NAME: &str =
            "tokens with such a subject are rejected: a subject has up to 128 letters, digits and ._-:@/|+=,~";
        let (holder, role) = text.rsplit_once('=').ok_or(WRONG)?;
        let role = named(role).ok_or(WRONG)?;
        let kind = match (holder.strip_prefix(SUBJECT), role) {
            (Some(""), _) => return Err(WRONG),
            (Some(subject), _) if !is_name(subject) => return Err(NO_NAME),
            (Some(subject), role) => Kind::Subject {
                subject: subject.to_owned(),
                role,
            },
            (None, _) if holder.is_empty() => return Err(WRONG),
            (None, Role::Machine(_)) => return Err(SUBJECTS_ONLY),
            (None, Role::Operator(role)) => Kind::Value {
                value: holder.to_owned(),
                role,
            },
        };
        Ok(Self(kind))
    }
}

/// Parses the name of a role.
fn named(name: &str) -> Option<Role> {
    match name {
        "runner" => Some(Role::Machine(Machine::Runner)),
        "service" => Some(Role::Machine(Machine::Service)),
        name => operator(name).map(Role::Operator),
    }
}

/// Parses the name of an operator role.
fn operator(name: &str) -> Option<OperatorRole> {
    match name {
        "admin" => Some(OperatorRole::Admin),
        "viewer" => Some(OperatorRole::Viewer),
        _ => None,
    }
}

/// Why grants are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RolesError {
    /// No caller of that kind uses this service.
    #[error(
        "--jwt-role sub:{subject}={granted} has no effect: apart from operators, only a {known} calls this service; remove \
         it, or write sub:{subject}={known}"
    )]
    NotHere {
        /// The subject of the grant.
        subject: String,
        /// The granted role.
        granted: Machine,
        /// The kind of machine that calls this service.
        known: Machine,
    },
    /// A subject would have two roles, at least one of them a machine role.
    #[error(
        "--jwt-role gives sub:{subject} the roles {one} and {other}: a runner or a service has no other role; remove one \
         of them"
    )]
    TwoAtOnce {
        /// The subject.
        subject: String,
        /// The first role.
        one: String,
        /// The second role.
        other: String,
    },
}

/// The role claim, and the roles granted to its values and to subjects.
#[derive(Debug)]
pub(crate) struct Roles {
    claim: String,
    /// If empty, claim values are role names.
    grants: Vec<Grant>,
}

impl Roles {
    /// Creates the roles of a service whose callers are `known` and operators.
    ///
    /// # Errors
    ///
    /// If a grant has no meaning at this service, or if one subject would be a part of Troupe and something else.
    pub(crate) fn new(claim: Option<String>, grants: Vec<Grant>, known: Machine) -> Result<Self, RolesError> {
        let roles = Self {
            claim: claim.unwrap_or_else(|| CLAIM.to_owned()),
            grants,
        };
        for (subject, role) in roles.subjects() {
            let Role::Machine(granted) = role else { continue };
            if granted != known {
                return Err(RolesError::NotHere {
                    subject: subject.to_owned(),
                    granted,
                    known,
                });
            }
            if let Some((_, other)) = roles
                .subjects()
                .find(|(name, other)| *name == subject && *other != role)
            {
                return Err(RolesError::TwoAtOnce {
                    subject: subject.to_owned(),
                    one: role.to_string(),
                    other: other.to_string(),
                });
            }
        }
        Ok(roles)
    }

    /// Returns the grants to subjects.
    fn subjects(&self) -> impl Iterator<Item = (&str, Role)> {
        self.grants.iter().filter_map(|Grant(kind)| match kind {
            Kind::Subject { subject, role } => Some((subject.as_str(), *role)),
            Kind::Value { .. } => None,
        })
    }

    /// Returns the roles granted to this subject.
    fn named(&self, subject: &str) -> impl Iterator<Item = Role> {
        let own = self.subjects().filter(move |(name, _)| *name == subject);
        own.map(|(_, role)| role)
    }

    /// Returns the role of a subject with these claims; `None` if it has no role.
    ///
    /// A machine role excludes all other roles, regardless of the subject's groups. Of several operator roles the
    /// strongest applies, because each group that a provider lists adds permissions.
    pub(crate) fn of(&self, subject: &str, claims: &Map<String, Value>) -> Option<Role> {
        if let Some(machine) = self.named(subject).find(|role| matches!(role, Role::Machine(_))) {
            return Some(machine);
        }
        let values: Vec<&str> = match find(claims, &self.claim) {
            Some(Value::Array(values)) => values.iter().filter_map(Value::as_str).collect(),
            Some(value) => value.as_str().into_iter().collect(),
            None => Vec::new(),
        };
        let granted: Vec<Role> = if self.grants.is_empty() {
            values.into_iter().filter_map(operator).map(Role::Operator).collect()
        } else {
            let by_value = self.grants.iter().filter_map(|Grant(kind)| match kind {
                Kind::Value { value, role } if values.contains(&value.as_str()) => Some(Role::Operator(*role)),
                Kind::Value { .. } | Kind::Subject { .. } => None,
            });
            by_value.chain(self.named(subject)).collect()
        };
        let admin = Role::Operator(OperatorRole::Admin);
        if granted.contains(&admin) {
            return Some(admin);
        }
        granted.first().copied()
    }
}

/// Finds the claim at a dotted path. Claim names may contain dots, as URLs do: the whole rest of the path is tried
/// before a part of it.
fn find<'a>(claims: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    claims.get(path).or_else(|| {
        path.match_indices('.').find_map(|(dot, _)| {
            let inner = claims.get(&path[..dot])?.as_object()?;
            find(inner, &path[dot + 1..])
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::identity::{MAX_NAME_BYTES, NAME_MARKS};

    /// Returns the role of `ann` with these claims and grants.
    fn role(claim: Option<&str>, grants: &str, claims: &Value) -> Option<Role> {
        let roles = Roles::new(claim.map(str::to_owned), parsed(grants), Machine::Runner).unwrap();
        roles.of("ann", claims.as_object().unwrap())
    }

    fn parsed(grants: &str) -> Vec<Grant> {
        grants
            .split_terminator(';')
            .map(|grant| grant.parse().unwrap())
            .collect()
    }

    const ADMIN: Option<Role> = Some(Role::Operator(OperatorRole::Admin));
    const VIEWER: Option<Role> = Some(Role::Operator(OperatorRole::Viewer));
    const RUNNER: Option<Role> = Some(Role::Machine(Machine::Runner));

    #[test]
    fn without_grants_claim_values_are_role_names() {
        for (value, expected) in [
            (json!("admin"), ADMIN),
            (json!("viewer"), VIEWER),
            (json!(["viewer", "admin", "other"]), ADMIN),
            (json!(["other", 1, null, "viewer"]), VIEWER),
            (json!("Admin"), None),
            (json!("runner"), None),
            (json!(["service", "viewer"]), VIEWER),
            (json!([]), None),
            (json!({"admin": "admin"}), None),
            (json!(true), None),
            (Value::Null, None),
        ] {
            assert_eq!(role(None, "", &json!({"troupe_role": value})), expected, "{value}");
        }
        assert_eq!(role(None, "", &json!({})), None);
        assert_eq!(role(Some("roles"), "", &json!({"troupe_role": "admin"})), None);
    }

    #[test]
    fn grants_map_values_and_subjects_to_roles() {
        let groups = json!({"groups": ["cn=ops,ou=troupe", "staff"]});
        for (grants, expected) in [
            ("cn=ops,ou=troupe=admin", ADMIN),
            ("staff=viewer", VIEWER),
            ("staff=viewer;cn=ops,ou=troupe=admin", ADMIN),
            ("cn=ops,ou=troupe=admin;staff=viewer", ADMIN),
            ("sub:ann=viewer", VIEWER),
            ("sub:ann=viewer;staff=admin", ADMIN),
            ("sub:bob=admin", None),
            ("sub:bob=admin;staff=viewer", VIEWER),
        ] {
            assert_eq!(role(Some("groups"), grants, &groups), expected, "{grants}");
        }
        // Role names are accepted only if there are no grants, and a claim value is never a subject.
        assert_eq!(role(None, "staff=viewer", &json!({"troupe_role": "admin"})), None);
        assert_eq!(role(None, "sub:bob=admin", &json!({"troupe_role": "sub:bob"})), None);
        assert_eq!(role(None, "sub:ann=viewer", &json!({})), VIEWER);
    }

    #[test]
    fn machine_subject_has_no_operator_role() {
        let claims = json!({"groups": ["runner", "ops"], "troupe_role": "runner"});
        for (grants, expected) in [
            ("sub:ann=runner", RUNNER),
            ("sub:ann=runner;sub:ann=runner", RUNNER),
            ("ops=admin;sub:ann=runner", RUNNER),
            ("sub:ann=runner;sub:bob=admin", RUNNER),
            ("sub:bob=runner", None),
            ("sub:bob=runner;ops=viewer", VIEWER),
            ("sub:annn=runner;sub:an=runner;sub:Ann=runner", None),
        ] {
            assert_eq!(role(Some("groups"), grants, &claims), expected, "{grants}");
        }
        for wrong in ["runner=runner", "ops=service", "sub=runner"] {
            assert!(
                wrong.parse::<Grant>().unwrap_err().contains("only subjects"),
                "{wrong:?}"
            );
        }
    }

    #[test]
    fn meaningless_and_ambiguous_grants_are_rejected() {
        let refused = |grants: &str, known| Roles::new(None, parsed(grants), known).unwrap_err().to_string();
        let text = refused("ops=admin;sub:a=service", Machine::Runner);
        assert!(
            text.contains("sub:a=service") && text.contains("only a runner"),
            "{text}"
        );
        let text = refused("sub:b=runner", Machine::Service);
        assert!(
            text.contains("sub:b=runner") && text.contains("only a service"),
            "{text}"
        );
        for grants in ["sub:a=admin;sub:a=runner", "sub:a=runner;sub:b=runner;sub:a=viewer"] {
            let text = refused(grants, Machine::Runner);
            assert!(text.contains("sub:a the roles runner and "), "{text}");
        }
        assert!(Roles::new(None, parsed("sub:a=service;sub:b=service;c=admin"), Machine::Service).is_ok());
    }

    #[test]
    fn impossible_subject_is_rejected() {
        let longest = "x".repeat(MAX_NAME_BYTES);
        assert!(format!("sub:{longest}=runner").parse::<Grant>().is_ok());
        for subject in [format!("{longest}x"), "a b".to_owned()] {
            let refused = format!("sub:{subject}=runner").parse::<Grant>().unwrap_err();
            for part in [MAX_NAME_BYTES.to_string(), NAME_MARKS.to_owned()] {
                assert!(refused.contains(&part), "{refused}");
            }
        }
    }

    #[test]
    fn claim_path_allows_names_with_dots() {
        let claims = json!({
            "realm_access": {"roles": ["admin"]},
            "https://example.org/roles": ["admin"],
            "kubernetes.io": {"namespace": "admin"},
            "a.b": "admin", "a": {"b": "other"},
        });
        for (path, expected) in [
            ("realm_access.roles", ADMIN),
            ("https://example.org/roles", ADMIN),
            ("kubernetes.io.namespace", ADMIN),
            ("a.b", ADMIN),
            ("realm_access", None),
            ("realm_access.roles.0", None),
            ("realm_access.", None),
            (".", None),
            ("", None),
        ] {
            assert_eq!(role(Some(path), "", &claims), expected, "{path:?}");
        }
    }

    #[test]
    fn grant_has_holder_and_role() {
        for wrong in [
            "",
            "=",
            "admin",
            "=admin",
            "sub:=admin",
            "sub:=runner",
            "=runner",
            "ops=root",
            "ops=",
            "admin=ops",
        ] {
            assert!(wrong.parse::<Grant>().is_err(), "{wrong:?}");
        }
    }
}
