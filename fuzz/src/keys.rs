//! The keys of thread tokens. They stay from run to run: the same input makes the same token.

use std::{fs, path::PathBuf};

use svc_kit::thread_token::TokenKeys;

/// The directory that has them.
pub fn directory() -> PathBuf {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/target/keys"));
    fs::create_dir_all(&path).expect("a directory for keys");
    path
}

/// The keys themselves.
pub fn token_keys() -> TokenKeys {
    TokenKeys::load_or_create(&directory()).expect("keys")
}
