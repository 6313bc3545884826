//! The keys of thread tokens. They are the same in each run, so an input always creates the same token.

use std::{fs, path::PathBuf};

use svc_kit::thread_token::TokenKeys;

/// Returns the directory of the keys.
pub fn directory() -> PathBuf {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/target/keys"));
    fs::create_dir_all(&path).expect("a directory for keys");
    path
}

/// Returns the keys.
pub fn token_keys() -> TokenKeys {
    TokenKeys::load_or_create(&directory()).expect("keys")
}
