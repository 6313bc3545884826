//! What an operator of an identity provider may do: by a claim of the provider's, and by what the options make of it.

use std::str::FromStr;

use serde_json::{Map, Value};

use crate::identity::OperatorRole;

/// The claim that is read where the options name none.
const CLAIM: &str = "troupe_role";
/// What is before a subject that stands in the place of a claim's value.
const SUBJECT: &str = "sub:";

/// A role and to whom it is granted: `VALUE=ROLE`, or `sub:SUBJECT=ROLE`. The value may have `=` in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    holder: Holder,
    role: OperatorRole,
}

/// To whom a role is granted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Holder {
    /// Everybody whose claim is this text, or a list that has it.
    Value(String),
    /// Whoever is this subject.
    Subject(String),
}

impl FromStr for Grant {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        const WRONG: &str = "write VALUE=ROLE or sub:SUBJECT=ROLE, where ROLE is admin or viewer";
        let (holder, role) = text.rsplit_once('=').ok_or(WRONG)?;
        let role = named(role).ok_or(WRONG)?;
        let holder = match holder.strip_prefix(SUBJECT) {
            Some(subject) if !subject.is_empty() => Holder::Subject(subject.to_owned()),
            None if !holder.is_empty() => Holder::Value(holder.to_owned()),
            Some(_) | None => return Err(WRONG),
        };
        Ok(Self { holder, role })
    }
}

/// The role of that name.
fn named(name: &str) -> Option<OperatorRole> {
    match name {
        "admin" => Some(OperatorRole::Admin),
        "viewer" => Some(OperatorRole::Viewer),
        _ => None,
    }
}

/// Which claim is read, and what its values grant.
#[derive(Debug)]
pub(crate) struct Roles {
    claim: String,
    /// Empty: the values are names of roles themselves.
    grants: Vec<Grant>,
}

impl Roles {
    pub(crate) fn new(claim: Option<String>, grants: Vec<Grant>) -> Self {
        Self {
            claim: claim.unwrap_or_else(|| CLAIM.to_owned()),
            grants,
        }
    }

    /// The strongest role that is granted to a subject with these claims, since each group that a provider lists adds to
    /// what its members may; `None`: none is.
    pub(crate) fn of(&self, subject: &str, claims: &Map<String, Value>) -> Option<OperatorRole> {
        let values: Vec<&str> = match find(claims, &self.claim) {
            Some(Value::Array(values)) => values.iter().filter_map(Value::as_str).collect(),
            Some(value) => value.as_str().into_iter().collect(),
            None => Vec::new(),
        };
        let granted: Vec<OperatorRole> = if self.grants.is_empty() {
            values.into_iter().filter_map(named).collect()
        } else {
            let is_held = |grant: &&Grant| match &grant.holder {
                Holder::Value(value) => values.contains(&value.as_str()),
                Holder::Subject(name) => name == subject,
            };
            self.grants.iter().filter(is_held).map(|grant| grant.role).collect()
        };
        if granted.contains(&OperatorRole::Admin) {
            return Some(OperatorRole::Admin);
        }
        granted.first().copied()
    }
}

/// The claim at a dotted path. Names may have dots themselves, as URLs do: the whole rest of the path is looked for
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

    /// What `ann` may do with these claims, by these grants.
    fn role(claim: Option<&str>, grants: &str, claims: &Value) -> Option<OperatorRole> {
        let grants = grants
            .split_terminator(';')
            .map(|grant| grant.parse().unwrap())
            .collect();
        Roles::new(claim.map(str::to_owned), grants).of("ann", claims.as_object().unwrap())
    }

    const ADMIN: Option<OperatorRole> = Some(OperatorRole::Admin);
    const VIEWER: Option<OperatorRole> = Some(OperatorRole::Viewer);

    #[test]
    fn without_grants_the_values_are_names_of_roles() {
        for (value, expected) in [
            (json!("admin"), ADMIN),
            (json!("viewer"), VIEWER),
            (json!(["viewer", "admin", "other"]), ADMIN),
            (json!(["other", 1, null, "viewer"]), VIEWER),
            (json!("Admin"), None),
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
    fn grants_say_what_values_and_subjects_may() {
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
        // The names of roles count where they are granted alone, and a value is no subject.
        assert_eq!(role(None, "staff=viewer", &json!({"troupe_role": "admin"})), None);
        assert_eq!(role(None, "sub:bob=admin", &json!({"troupe_role": "sub:bob"})), None);
        assert_eq!(role(None, "sub:ann=viewer", &json!({})), VIEWER);
    }

    #[test]
    fn a_path_leads_into_claims_whose_names_may_have_dots() {
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
    fn a_grant_names_a_holder_and_a_role() {
        for wrong in [
            "",
            "=",
            "admin",
            "=admin",
            "sub:=admin",
            "ops=root",
            "ops=",
            "admin=ops",
        ] {
            assert!(wrong.parse::<Grant>().is_err(), "{wrong:?}");
        }
    }
}
