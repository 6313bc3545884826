//! Limits of request fields. Each error names the field and the limit.

use troupe_proto::common::v1 as common;

use crate::{
    domain::{digest::Digest, error::RegistryError, name, prompt::Mode, sandbox::Sandbox, template::Scope},
    source::bundle::Workspace,
};

/// Maximum length of a path, in bytes.
pub(super) const PATH_BYTES: usize = 4096;
/// Maximum length of the name of a template, a persona or a provider, in bytes.
pub(super) const NAME_BYTES: usize = name::MAX_BYTES;
/// Maximum length of a model's name, in bytes.
pub(super) const MODEL_BYTES: usize = 256;
/// Maximum length of a text to be routed, in bytes.
pub(super) const TEXT_BYTES: usize = 64 * 1024;
/// Maximum length of the parent's instructions, in bytes.
pub(super) const INSTRUCTIONS_BYTES: usize = 1024 * 1024;
/// Maximum length of a page token, in bytes. Tokens of this service are shorter.
pub(super) const TOKEN_BYTES: usize = 1024;
/// The default and maximum page size, in items.
pub(super) const PAGE_SIZE: (usize, usize) = (500, 2_000);

fn refuse<T>(field: &'static str, message: String) -> Result<T, RegistryError> {
    Err(RegistryError::Argument { field, message })
}

/// Checks that a text is within its limit and has no NUL.
pub(super) fn text(field: &'static str, value: String, limit: usize) -> Result<String, RegistryError> {
    if value.len() > limit {
        return refuse(
            field,
            format!("{field} has {} bytes; at most {limit} are allowed", value.len()),
        );
    }
    if value.contains('\0') {
        return refuse(field, format!("{field} has a NUL character"));
    }
    Ok(value)
}

/// Returns a trimmed text; `None` if it is blank.
pub(super) fn non_blank(field: &'static str, value: &str, limit: usize) -> Result<Option<String>, RegistryError> {
    let value = text(field, value.trim().to_owned(), limit)?;
    Ok(Some(value).filter(|value| !value.is_empty()))
}

/// Returns the workspace that a call reads from. With a bundle, the working directory exists only on the runner's
/// machine, so only its length is checked. Paths are not trimmed, because they may contain spaces.
pub(super) fn workspace(cwd: String, digest: String) -> Result<Workspace, RegistryError> {
    let cwd = text("cwd", cwd, PATH_BYTES)?;
    let digest = text("workspace_digest", digest, NAME_BYTES)?;
    if digest.is_empty() {
        return Ok(Workspace::Disk(Some(cwd).filter(|cwd| !cwd.is_empty())));
    }
    Ok(Workspace::Bundle(digest))
}

/// Parses a SHA-256.
pub(super) fn digest(field: &'static str, value: &str) -> Result<Digest, RegistryError> {
    match Digest::parse(value) {
        Some(digest) => Ok(digest),
        None => refuse(
            field,
            format!("{field} is not a SHA-256; expected 64 hexadecimal digits"),
        ),
    }
}

/// Returns the number of items in a page.
pub(super) fn page_size(value: i32) -> Result<usize, RegistryError> {
    let (default, largest) = PAGE_SIZE;
    match usize::try_from(value) {
        Ok(0) => Ok(default),
        Ok(size) => Ok(size.min(largest)),
        Err(_) => refuse("page_size", format!("page_size is {value}; it may not be negative")),
    }
}

/// Converts a name space. A value that this release does not know is rejected.
pub(super) fn namespace(value: i32) -> Result<common::Namespace, RegistryError> {
    match common::Namespace::try_from(value) {
        Ok(common::Namespace::Unspecified | common::Namespace::AgentType) => Ok(common::Namespace::AgentType),
        Ok(common::Namespace::RoleTemplate) => Ok(common::Namespace::RoleTemplate),
        Err(_) => refuse("namespace", format!("namespace {value} is unknown")),
    }
}

/// Returns the scope of an uploaded file.
pub(super) fn scope(value: i32) -> Result<Scope, RegistryError> {
    match common::Scope::try_from(value) {
        Ok(common::Scope::Project) => Ok(Scope::Project),
        Ok(common::Scope::User) => Ok(Scope::User),
        Ok(common::Scope::Unspecified | common::Scope::System) | Err(_) => refuse(
            "files",
            format!("scope {value} cannot be uploaded; expected PROJECT or USER"),
        ),
    }
}

/// Returns the session's mode.
pub(super) fn mode(value: i32) -> Result<Mode, RegistryError> {
    match common::Mode::try_from(value) {
        Ok(common::Mode::Unspecified | common::Mode::Implementation) => Ok(Mode::Implementation),
        Ok(common::Mode::Planning) => Ok(Mode::Planning),
        Err(_) => refuse("mode", format!("mode {value} is unknown")),
    }
}

/// Returns the parent's sandbox, if one is given.
pub(super) fn sandbox(value: i32) -> Result<Option<Sandbox>, RegistryError> {
    match common::Sandbox::try_from(value) {
        Ok(common::Sandbox::Unspecified) => Ok(None),
        Ok(common::Sandbox::ReadOnly) => Ok(Some(Sandbox::ReadOnly)),
        Ok(common::Sandbox::WorkspaceWrite) => Ok(Some(Sandbox::WorkspaceWrite)),
        Ok(common::Sandbox::FullAccess) => Ok(Some(Sandbox::FullAccess)),
        Err(_) => refuse("inherited.sandbox", format!("inherited.sandbox {value} is unknown")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlong_text_error_names_field_and_limit() {
        assert_eq!(
            text("cwd", "x".repeat(5), 4).unwrap_err().to_string(),
            "cwd has 5 bytes; at most 4 are allowed"
        );
        assert!(text("cwd", "a\0".to_owned(), 4).is_err());
        assert_eq!(text("cwd", "x".repeat(4), 4).unwrap(), "xxxx");
    }

    #[test]
    fn page_sizes_are_coerced() {
        assert_eq!(page_size(0).unwrap(), 500);
        assert_eq!(page_size(1).unwrap(), 1);
        assert_eq!(page_size(i32::MAX).unwrap(), 2_000);
        assert!(page_size(-1).is_err());
    }

    #[test]
    fn unknown_enum_values_are_refused() {
        assert!(namespace(9).is_err());
        assert!(mode(9).is_err());
        assert!(sandbox(9).is_err());
        assert_eq!(sandbox(0).unwrap(), None);
        assert!(scope(0).is_err() && scope(3).is_err() && scope(9).is_err());
    }

    #[test]
    fn bundle_digest_replaces_working_directory() {
        let of = |cwd: &str, digest: &str| workspace(cwd.to_owned(), digest.to_owned()).unwrap();
        assert_eq!(of("", ""), Workspace::Disk(None));
        assert_eq!(of("/a", ""), Workspace::Disk(Some("/a".to_owned())));
        assert_eq!(of("not absolute", "d"), Workspace::Bundle("d".to_owned()));
    }
}
