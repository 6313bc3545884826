//! Invariants of every state of a session.

use supervisor_core::state::session::Session;
use supervisor_log::codec::{decode_snapshot, encode_snapshot};
use supervisor_svc::convert::{View, thread as shown};

/// Converts the state for a client, and checks that it survives encoding and decoding.
pub fn check(session: &Session) {
    let _ = shown::session(session);
    for thread in session.in_spawn_order() {
        let _ = shown::thread(session, thread, View::default());
    }
    // Compares bytes instead of states: a snapshot contains no indices, and durations are truncated when they are
    // written.
    let bytes = encode_snapshot(session);
    let again = decode_snapshot(session.id, session.sequence, &bytes).expect("an encoded snapshot decodes");
    assert_eq!(
        encode_snapshot(&again),
        bytes,
        "a decoded snapshot equals the encoded one"
    );
}
