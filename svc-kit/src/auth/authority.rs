//! A service's permission table: which kinds of principals may call which methods. Also contains a check of the table
//! itself.

use std::collections::{BTreeSet, HashMap};

use prost::Message as _;
use prost_types::FileDescriptorSet;
use tonic::{Code, Status};
use troupe_proto::{fault::Fault, reason::Reason};

use crate::identity::{OperatorRole, Principal};

/// Maximum number of bytes of a method path that an error quotes. No method of Troupe is longer.
const QUOTED_BYTES: usize = 128;

/// A kind of principal in the permission table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Caller {
    /// An operator who may do everything.
    Admin,
    /// An operator who may read.
    Viewer,
    /// A thread.
    Thread,
    /// A runner.
    Runner,
    /// Another service.
    Service,
    /// A caller of exported agents.
    A2aCaller,
}

impl Caller {
    /// Returns the kind of a principal.
    #[must_use]
    pub const fn of(principal: &Principal) -> Self {
        match principal {
            Principal::Operator { role, .. } => match role {
                OperatorRole::Admin => Self::Admin,
                OperatorRole::Viewer => Self::Viewer,
            },
            Principal::Thread(_) => Self::Thread,
            Principal::Runner { .. } => Self::Runner,
            Principal::Service { .. } => Self::Service,
            Principal::Caller { .. } => Self::A2aCaller,
        }
    }
}

/// The permissions of one method.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The method's full path: `/troupe.supervisor.v1.AgentSupervisorService/SpawnAgent`.
    pub method: &'static str,
    /// The kinds of principals that may call the method. All others are rejected.
    pub who: &'static [Caller],
    /// The method's effect on the service's data.
    pub effect: Effect,
}

/// A method's effect on the service's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The method does not change data. It may change the caller's own view.
    Reads,
    /// A call may wait for minutes: for threads or for an operator. Calls of such methods have separate concurrency
    /// limits.
    Waits,
    /// The method changes data. Its calls are in the audit log.
    Changes,
}

/// A service's permission table, indexed for lookup.
#[derive(Clone, Debug)]
pub struct Authority {
    rows: HashMap<&'static str, Row>,
}

impl Authority {
    /// Creates an authority from these rows.
    #[must_use]
    pub fn new(table: &'static [Row]) -> Self {
        Self {
            rows: table.iter().map(|row| (row.method, *row)).collect(),
        }
    }

    /// Returns the path of a method in the table if the method changes data.
    pub(super) fn changing(&self, method: &str) -> Option<&'static str> {
        let row = self.rows.get(method)?;
        (row.effect == Effect::Changes).then_some(row.method)
    }

    /// Returns the full paths of the methods that may block.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &'static str> {
        let waiting = self.rows.values().filter(|row| row.effect == Effect::Waits);
        waiting.map(|row| row.method)
    }

    /// Returns the full paths of the methods in the table.
    pub(super) fn methods(&self) -> impl Iterator<Item = &'static str> {
        self.rows.keys().copied()
    }

    /// Checks whether a principal may call a method.
    ///
    /// # Errors
    ///
    /// PERMISSION_DENIED NOT_PERMITTED, naming the kind of principal and the method; UNIMPLEMENTED UNKNOWN_METHOD,
    /// naming the method, if the table has no such path.
    pub fn check(&self, method: &str, principal: &Principal) -> Result<(), Status> {
        let quoted = quote(method);
        let Some(row) = self.rows.get(method) else {
            let message = format!("this service has no method {quoted}; its release may be older than the caller's");
            let fault = Fault::new(Code::Unimplemented, Reason::UnknownMethod, message);
            return Err(fault.with("method", quoted).into());
        };
        if row.who.contains(&Caller::of(principal)) {
            return Ok(());
        }
        let kind = principal.kind();
        let message = format!("a caller of kind {kind} may not call {quoted}");
        Err(Fault::new(Code::PermissionDenied, Reason::NotPermitted, message)
            .with("principal", kind)
            .with("method", quoted)
            .into())
    }
}

/// Returns a method's path as errors and logs show it. The path is truncated, because callers choose its length.
pub(crate) fn quote(method: &str) -> &str {
    let mut end = method.len().min(QUOTED_BYTES);
    while !method.is_char_boundary(end) {
        end -= 1;
    }
    &method[..end]
}

/// Returns the defects of a table: methods of `services` without a row, rows without a method, methods with two rows.
/// Each service has a test that walks the descriptors and expects an empty result.
#[must_use]
pub fn rows_missing(descriptor_set: &[u8], services: &[&str], table: &[Row]) -> Vec<String> {
    let set = match FileDescriptorSet::decode(descriptor_set) {
        Ok(set) => set,
        Err(error) => return vec![format!("the descriptor set does not decode: {error}")],
    };
    let mut found = BTreeSet::new();
    let mut methods = BTreeSet::new();
    for file in &set.file {
        for service in &file.service {
            let name = format!("{}.{}", file.package(), service.name());
            if services.contains(&name.as_str()) {
                methods.extend(service.method.iter().map(|method| format!("/{name}/{}", method.name())));
                found.insert(name);
            }
        }
    }
    let mut problems = Vec::new();
    for service in services.iter().filter(|service| !found.contains(**service)) {
        problems.push(format!("no such service: {service}"));
    }
    let mut rows = BTreeSet::new();
    for row in table {
        if !rows.insert(row.method) {
            problems.push(format!("two rows: {}", row.method));
        }
        if !methods.contains(row.method) {
            problems.push(format!("a row without a method: {}", row.method));
        }
    }
    for method in methods.iter().filter(|method| !rows.contains(method.as_str())) {
        problems.push(format!("a method without a row: {method}"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_mismatch_with_descriptors_is_reported() {
        let set = tonic_health::pb::FILE_DESCRIPTOR_SET;
        let check = Row {
            method: "/grpc.health.v1.Health/Check",
            who: &[],
            effect: Effect::Reads,
        };
        let watch = Row {
            method: "/grpc.health.v1.Health/Watch",
            who: &[],
            effect: Effect::Reads,
        };
        let stale = Row {
            method: "/grpc.health.v1.Health/Gone",
            who: &[],
            effect: Effect::Reads,
        };
        let service = &["grpc.health.v1.Health"];
        let problems = rows_missing(set, service, &[check, check, stale]);
        assert_eq!(
            problems
                .iter()
                .filter(|problem| problem.starts_with("a method"))
                .collect::<Vec<_>>(),
            rows_missing(set, service, &[check]).iter().collect::<Vec<_>>()
        );
        assert!(problems.contains(&"two rows: /grpc.health.v1.Health/Check".to_owned()));
        assert!(problems.contains(&"a row without a method: /grpc.health.v1.Health/Gone".to_owned()));
        assert!(problems.contains(&"a method without a row: /grpc.health.v1.Health/Watch".to_owned()));
        assert!(
            !rows_missing(set, service, &[check, watch])
                .iter()
                .any(|problem| problem.contains("Check"))
        );
        assert_eq!(
            rows_missing(set, &["none.v1.None"], &[]),
            ["no such service: none.v1.None"]
        );
        assert_eq!(rows_missing(&[0xff], &[], &[]).len(), 1);
    }

    #[test]
    fn quoted_methods_have_bounded_length() {
        let method = "/grpc.health.v1.Health/Check";
        assert_eq!(quote(method), method);
        assert_eq!(quote(&"é".repeat(500)).len(), QUOTED_BYTES);
        assert!(quote(&format!("/{}", "é".repeat(500))).len() < QUOTED_BYTES + 1);
    }
}
