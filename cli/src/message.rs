//! The message to an agent, from the command line or from standard input.

use std::io::{self, Read as _};

use crate::error::{Error, Result};

/// Maximum input size of the supervisor, in bytes.
const MAX_BYTES: u64 = 1024 * 1024;

/// Returns the message. `-` reads standard input.
pub(crate) fn read(given: &str) -> Result<String> {
    if given != "-" {
        return Ok(given.to_owned());
    }
    let mut text = String::new();
    let read = io::stdin().lock().take(MAX_BYTES + 1).read_to_string(&mut text);
    let read = read.map_err(|error| Error::failure(format!("cannot read the message from standard input: {error}")))?;
    if u64::try_from(read).is_ok_and(|read| read > MAX_BYTES) {
        return Err(Error::usage(format!(
            "the message on standard input is longer than {MAX_BYTES} bytes"
        ))
        .hint("put it into a file and name the file in the message"));
    }
    Ok(text)
}
