//! What has to hold of every state of a session, however it came about.

use supervisor_svc::{
    domain::session::Session,
    wire::{View, decode_snapshot, encode_snapshot, thread as shown},
};

/// Shows the state to a client, and writes it down and reads it back.
pub fn check(session: &Session) {
    let _ = shown::session(session);
    for thread in session.in_spawn_order() {
        let _ = shown::thread(session, thread, View::default());
    }
    // The bytes and not the states: indices do not stand in a snapshot, and spans are cut where they are written.
    let bytes = encode_snapshot(session);
    let again = decode_snapshot(session.id, session.sequence, &bytes).expect("what is written is read");
    assert_eq!(encode_snapshot(&again), bytes, "what is read is what was written");
}
