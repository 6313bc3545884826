//! Conversion of domain errors to API errors. Only this module uses status codes and reasons.

use std::{fmt::Display, time::Duration};

use tonic::{Code, Status};
use troupe_proto::{fault::Fault, reason::Reason};

use crate::domain::{error::RegistryError, name::InvalidAgentType};

/// Returns the status of an error.
pub(super) fn status(error: RegistryError) -> Status {
    fault(error).into()
}

/// Maximum length of a status message, in characters. Statuses travel in headers, whose size clients limit, while names
/// in templates and paths in requests may be long.
const MESSAGE_CHARS: usize = 1_500;
/// Maximum length of a metadata value, in characters.
const VALUE_CHARS: usize = 500;
/// Retry delay after which one of the open streams may have ended.
const RETRY_WATCH: Duration = Duration::from_secs(30);

fn fault(error: RegistryError) -> Fault {
    let message = cut(&error, MESSAGE_CHARS);
    match error {
        RegistryError::Argument { field, .. } => Fault::bad_field(Reason::InvalidArgument, field, message),
        RegistryError::InvalidAgentType(InvalidAgentType { given }) => {
            Fault::bad_field(Reason::InvalidAgentType, "agent_type", message).with("agent_type", value(&given))
        }
        RegistryError::AmbiguousAgentType { given, candidates } => {
            Fault::bad_field(Reason::AmbiguousAgentType, "agent_type", message)
                .with("agent_type", value(&given))
                .with("candidates", value(&candidates.join(",")))
        }
        RegistryError::TemplateNotFound { name } => Fault::new(Code::NotFound, Reason::TemplateNotFound, message)
            .with("template", value(&name))
            .resource("agent template", value(&name), "no scope has a template of that name"),
        RegistryError::TemplateInvalid { name, defect } => {
            Fault::new(Code::FailedPrecondition, Reason::TemplateInvalid, message)
                .with("template", value(&name))
                .with("defect", value(&defect))
                .precondition(value(&name), value(&defect))
        }
        RegistryError::UnknownPersona {
            agent_type,
            agent_name,
            available,
        } => Fault::bad_field(Reason::InvalidAgentName, "agent_name", message)
            .with("agent_type", value(&agent_type))
            .with("agent_name", value(&agent_name))
            .with("available", value(&available.join(","))),
        RegistryError::PersonaRequired { agent_type, available } => {
            Fault::bad_field(Reason::InvalidAgentName, "agent_name", message)
                .with("agent_type", value(&agent_type))
                .with("available", value(&available.join(",")))
        }
        RegistryError::PersonaWithoutRole => Fault::bad_field(Reason::InvalidAgentName, "agent_name", message),
        RegistryError::UnknownModel { model, available } => Fault::bad_field(Reason::UnknownModel, "model", message)
            .with("model", value(&model))
            .with("available", value(&available.join(","))),
        RegistryError::UnsupportedEffort {
            effort,
            model,
            supported,
        } => Fault::bad_field(Reason::UnsupportedEffort, "reasoning_effort", message)
            .with("reasoning_effort", value(&effort))
            .with("model", value(&model))
            .with("supported", value(&supported.join(","))),
        RegistryError::UnknownProvider { provider, available } => {
            Fault::bad_field(Reason::UnknownProvider, "provider", message)
                .with("provider", value(&provider))
                .with("available", value(&available.join(",")))
        }
        RegistryError::DigestMismatch { name, expected, actual } => {
            let actual = actual.map_or_else(String::new, |digest| digest.to_string());
            Fault::new(Code::FailedPrecondition, Reason::DigestMismatch, message)
                .with("template", value(&name))
                .with("expected", value(&expected))
                .with("actual", value(&actual))
        }
        RegistryError::CwdRelative { cwd } | RegistryError::CwdGoesUp { cwd } => {
            Fault::bad_field(Reason::InvalidArgument, "cwd", message).with("cwd", value(&cwd))
        }
        RegistryError::CwdNotFound { cwd } => {
            Fault::new(Code::NotFound, Reason::CwdNotFound, message).with("cwd", value(&cwd))
        }
        RegistryError::CwdOutsideRoots { cwd } => {
            Fault::new(Code::PermissionDenied, Reason::CwdOutsideRoots, message).with("cwd", value(&cwd))
        }
        RegistryError::WorkspaceUnknown { digest } => {
            Fault::new(Code::FailedPrecondition, Reason::WorkspaceUnknown, message)
                .with("workspace_digest", value(&digest))
        }
        RegistryError::RequestIdReused { request_id } => {
            Fault::new(Code::AlreadyExists, Reason::RequestIdReused, message).with("request_id", value(&request_id))
        }
        RegistryError::TooManyWatchers { max } => Fault::new(Code::ResourceExhausted, Reason::Overloaded, message)
            .with("max", max)
            .quota("WatchAgents", "streams that are open at once")
            .retry_after(RETRY_WATCH),
        RegistryError::Abandoned => Fault::new(Code::Cancelled, Reason::DeadlineExceeded, message),
        RegistryError::Draining => {
            Fault::new(Code::Unavailable, Reason::Draining, message).retry_after(Duration::from_secs(1))
        }
        RegistryError::Internal => Fault::new(Code::Internal, Reason::Internal, message),
    }
}

fn value(value: &dyn Display) -> String {
    cut(value, VALUE_CHARS)
}

fn cut(value: &dyn Display, limit: usize) -> String {
    let text = value.to_string();
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_cut() {
        let cwd = "é".repeat(2_000);
        let fault = fault(RegistryError::CwdRelative { cwd });
        assert!(fault.message().chars().count() <= MESSAGE_CHARS + 3);
        assert_eq!(value(&"short"), "short");
    }
}
