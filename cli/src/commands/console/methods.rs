//! The methods of the services that the page may call.

use std::fmt;

use svc_kit::{
    auth::{Caller, Effect, Row},
    identity::OperatorRole,
};
use tonic::{Code, Status};
use troupe_proto::{fault::Fault, reason::Reason};

/// The permissions of a user of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// All methods that the console forwards.
    Operator,
    /// The methods that a viewer of the services may call.
    Viewer,
}

impl Access {
    /// Returns the role with these permissions in the services.
    pub(super) const fn role(self) -> OperatorRole {
        match self {
            Self::Operator => OperatorRole::Admin,
            Self::Viewer => OperatorRole::Viewer,
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Operator => "operator",
            Self::Viewer => "viewer",
        })
    }
}

/// The service that has a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    /// The supervisor.
    Supervisor,
    /// The registry.
    Registry,
    /// This process.
    Console,
}

/// The prefix of the methods that the console serves itself.
const CONSOLE: &str = "/troupe.console.v1.ConsoleService/";
/// The prefix of the supervisor's methods that are forwarded. The methods for runners are in another service.
const SUPERVISOR: &str = "/troupe.supervisor.v1.AgentSupervisorService/";
const REGISTRY: &str = "/troupe.registry.v1.AgentRegistryService/";

/// Methods for agents, runners and command lines, which the page does not need.
const NOT_FORWARDED: &[&str] = &[
    "AppendTranscript",
    "AskParent",
    "AuthorizeTool",
    "GetWorkspace",
    "PutWorkspace",
    "ReportResult",
];

/// Returns the service of a method, if the page may call it.
///
/// # Errors
///
/// Returns UNIMPLEMENTED for a method that is not for the page, and PERMISSION_DENIED for a method that a viewer may
/// not call.
pub(super) fn service_of(path: &str, access: Access) -> Result<Service, Status> {
    if path.starts_with(CONSOLE) {
        return Ok(Service::Console);
    }
    let found = [(SUPERVISOR, Service::Supervisor), (REGISTRY, Service::Registry)]
        .into_iter()
        .find_map(|(prefix, service)| Some((service, path.strip_prefix(prefix)?)))
        .filter(|(_, name)| !NOT_FORWARDED.contains(name))
        .and_then(|(service, name)| Some((service, name, row(path)?)));
    let Some((service, name, row)) = found else {
        let message = "the console does not forward this method";
        return Err(Fault::new(Code::Unimplemented, Reason::UnknownMethod, message).into());
    };
    let caller = match access {
        Access::Operator => Caller::Admin,
        Access::Viewer => Caller::Viewer,
    };
    if row.who.contains(&caller) {
        return Ok(service);
    }
    let message = format!(
        "{name} is not allowed: this login only views; see --read-only and --proxy-operator of `troupe console`"
    );
    Err(Fault::new(Code::PermissionDenied, Reason::NotPermitted, message).into())
}

/// Returns the method of that path if it changes data.
pub(super) fn changing(path: &str) -> Option<&'static str> {
    let row = row(path)?;
    (row.effect == Effect::Changes).then_some(row.method)
}

/// Returns the row of a method in the permission tables of the services.
fn row(path: &str) -> Option<&'static Row> {
    let mut rows = supervisor_svc::AUTHORITY.iter().chain(registry_svc::AUTHORITY);
    rows.find(|row| row.method == path)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use prost_reflect::DescriptorPool;
    use troupe_proto::FILE_DESCRIPTOR_SET;

    use super::*;

    /// Returns all methods of the API with their paths.
    fn methods() -> Vec<(String, prost_reflect::MethodDescriptor)> {
        let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
        let services = pool
            .services()
            .filter(|service| service.full_name().starts_with("troupe."));
        let methods = services.flat_map(|service| service.methods().collect::<Vec<_>>());
        methods
            .map(|method| {
                let service = method.parent_service().full_name().to_owned();
                (format!("/{service}/{}", method.name()), method)
            })
            .collect()
    }

    #[test]
    fn forwarded_methods_take_one_message() {
        let forwarded: Vec<_> = methods()
            .into_iter()
            .filter(|(path, _)| service_of(path, Access::Operator).is_ok())
            .collect();
        assert!(forwarded.len() > 45, "{}", forwarded.len());
        for (path, method) in forwarded {
            assert!(!method.is_client_streaming(), "{path}");
        }
    }

    #[test]
    fn methods_of_runners_and_threads_are_not_forwarded() {
        for path in [
            "/troupe.supervisor.v1.ThreadRunnerService/Attach",
            "/troupe.supervisor.v1.AgentSupervisorService/AuthorizeTool",
            "/troupe.supervisor.v1.AgentSupervisorService/Unknown",
            "/troupe.registry.v1.AgentRegistryService/PutWorkspace",
            "/grpc.health.v1.Health/Check",
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            "/",
        ] {
            let status = service_of(path, Access::Operator).unwrap_err();
            assert_eq!(status.code(), Code::Unimplemented, "{path}");
        }
        let names: Vec<String> = methods().iter().map(|(_, method)| method.name().to_owned()).collect();
        assert!(NOT_FORWARDED.iter().all(|name| names.iter().any(|known| known == name)));
    }

    #[test]
    fn viewer_cannot_change_anything() {
        for (path, _) in methods() {
            if service_of(&path, Access::Viewer).is_ok_and(|service| service != Service::Console) {
                assert_eq!(changing(&path), None);
            }
        }
        let path = "/troupe.supervisor.v1.AgentSupervisorService/CloseAgent";
        let status = service_of(path, Access::Viewer).unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied);
        assert!(status.message().contains("--read-only"), "{status}");
        let path = "/troupe.supervisor.v1.AgentSupervisorService/ListSessions";
        assert_eq!(service_of(path, Access::Viewer).unwrap(), Service::Supervisor);
    }
}
