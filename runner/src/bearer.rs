//! A bearer token for calls.

use std::fmt;

use tonic::{
    Request,
    metadata::{Ascii, MetadataValue},
};

use crate::error::RunnerError;

/// A token in the form that calls contain. Its value is never printed.
#[derive(Clone)]
pub(crate) struct Bearer(MetadataValue<Ascii>);

impl Bearer {
    pub(crate) fn new(token: &str) -> Result<Self, RunnerError> {
        let mut value: MetadataValue<Ascii> = format!("Bearer {token}").parse().map_err(|_| RunnerError::BadToken)?;
        value.set_sensitive(true);
        Ok(Self(value))
    }

    pub(crate) fn authorize<T>(&self, request: &mut Request<T>) {
        request.metadata_mut().insert("authorization", self.0.clone());
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer(<redacted>)")
    }
}
