//! Snapshots of random histories: what a snapshot keeps is all that the log up to there says.

use proptest::{prelude::*, sample::Index};
use supervisor_core::{evolve::evolve, status::StatusKind};
use supervisor_log::codec::{decode_snapshot, encode_snapshot};

use crate::{
    model::{play, scripts, setups},
    world::World,
};

/// Within the append that closes a thread, what it asked an operator is not decided yet.
#[test]
fn snapshot_may_split_an_append() {
    let (mut world, thread) = World::with_thread_in(StatusKind::AwaitingApproval);
    world.close(thread);
    for length in 1..=world.log.len() {
        World::replay(&world.log[..length]);
    }
}

proptest! {
    #[test]
    fn snapshot_equals_fold_of_the_log(setup in setups(), script in scripts(), place in any::<Index>()) {
        let world = play(&setup, &script);
        let (before, after) = world.log.split_at(place.index(world.log.len()) + 1);
        let then = World::replay(before);
        let mut restored = decode_snapshot(then.id, then.sequence, &encode_snapshot(&then)).unwrap();
        prop_assert!(restored == then, "a snapshot loses or makes up something");
        for recorded in after {
            evolve(&mut restored, recorded);
        }
        prop_assert!(restored == world.session, "the log continues differently");
    }
}
