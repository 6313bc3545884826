//! Thread tokens: a text is valid if and only if it is exactly a token that these keys create for a thread.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use svc_kit::{identity::ThreadPrincipal, thread_token::TokenKeys};
use uuid::Uuid;

static KEYS: LazyLock<TokenKeys> = LazyLock::new(troupe_fuzz::keys::token_keys);

fn check(text: &str) {
    if let Some(thread) = KEYS.verify(text) {
        assert_eq!(KEYS.mint(&thread), text, "a token has one spelling");
    }
}

fuzz_target!(|input: ((u128, u128, u32), (u8, u8, &str))| {
    let ((session, thread, generation), (from, length, text)) = input;
    check(text);

    let thread = ThreadPrincipal {
        session: Uuid::from_u128(session),
        thread: Uuid::from_u128(thread),
        generation,
    };
    let mut token = KEYS.mint(&thread);
    assert_eq!(KEYS.verify(&token), Some(thread));

    // Replaces a part of the token with the text.
    let from = usize::from(from).min(token.len());
    let to = from.saturating_add(length.into()).min(token.len());
    token.replace_range(from..to, text);
    check(&token);
});
