//! Tests of members that share a log, and of the ownership of sessions.

use super::*;

const ACTIVE: Beat = Beat {
    state: MemberState::Active,
    sessions: 3,
    runners: 2,
};

/// Removes the member of `store`, as the member `by` does when the other one no longer beats.
async fn remove(store: &Store, by: &Store) {
    let members = by.beat(ACTIVE).await.unwrap().unwrap();
    let member = members.iter().find(|member| member.id == store.member()).unwrap();
    assert_eq!(by.remove_member(member.id, member.beats).await, Ok(true));
}

fn next(epoch: u64) -> Batch {
    let mut batch = batch(session(1), 1, 1);
    batch.epoch = Epoch::new(epoch);
    batch
}

pub(super) async fn session_of_living_member_is_not_claimed([one, two]: [Store; 2]) {
    created(&one, session(1), 1).await;
    assert_eq!(two.claim(session(1)).await, Ok(Claim::OwnedBy(one.member())));
    assert_eq!(one.append(next(1)).await, Ok(()));
    let entries = two.summaries(None, 9).await.unwrap();
    assert_eq!(entries[0].owner, Some(one.member()));
    let entries = one.summaries(None, 9).await.unwrap();
    assert_eq!(entries[0].owner, None, "the owner itself");
}

pub(super) async fn session_of_removed_member_is_claimed([one, two]: [Store; 2]) {
    created(&one, session(1), 1).await;
    remove(&one, &two).await;
    assert_eq!(one.append(next(1)).await, Ok(()), "it is not claimed yet");
    assert_eq!(two.claim(session(1)).await, granted(2));
    let fenced = WriteError::Fenced { current: Epoch::new(2) };
    let mut late = batch(session(1), 2, 1);
    assert_eq!(one.append(late.clone()).await, Err(fenced.clone()));
    late.epoch = Epoch::new(2);
    assert_eq!(one.append(late).await, Err(fenced), "with the epoch of the new owner");
    assert_eq!(one.beat(ACTIVE).await, Ok(None));
    assert_eq!(one.claim(session(1)).await, Ok(Claim::OwnedBy(two.member())));
    remove(&two, &two).await;
    assert_eq!(
        one.claim(session(1)).await,
        Err(WriteError::Refused(Refusal::NotMember))
    );
}

pub(super) async fn released_session_is_claimed([one, two]: [Store; 2]) {
    created(&one, session(1), 1).await;
    two.release(session(1), epoch()).await.unwrap();
    one.release(session(1), Epoch::new(2)).await.unwrap();
    assert_eq!(two.claim(session(1)).await, Ok(Claim::OwnedBy(one.member())));
    one.release(session(1), epoch()).await.unwrap();
    assert_eq!(two.claim(session(1)).await, granted(2));
    assert_eq!(one.claim(session(1)).await, Ok(Claim::OwnedBy(two.member())));
}

pub(super) async fn handed_over_session_belongs_to_its_new_owner([one, two]: [Store; 2]) {
    created(&one, session(1), 1).await;
    assert_eq!(two.hand_over(session(1), epoch(), two.member()).await, Ok(false));
    assert_eq!(one.hand_over(session(1), Epoch::new(2), two.member()).await, Ok(false));
    assert_eq!(one.hand_over(session(1), epoch(), two.member()).await, Ok(true));
    assert_eq!(one.claim(session(1)).await, Ok(Claim::OwnedBy(two.member())));
    assert_eq!(two.claim(session(1)).await, granted(3));
}

pub(super) async fn writes_of_former_owner_are_rejected([one, two]: [Store; 2]) {
    let mut first = batch(session(1), 0, 1);
    first.new_threads = vec![thread(1)];
    assert_eq!(one.create(None, first).await, Ok(Created::New));
    one.release(session(1), epoch()).await.unwrap();
    assert_eq!(two.claim(session(1)).await, granted(2));
    let fenced = || WriteError::Fenced { current: Epoch::new(2) };
    let put = one.put_snapshot(session(1), snapshot(1, b"")).await;
    assert_eq!(put, Err(fenced()));
    let compacted = one.compact(session(1), Sequence::ZERO, Evidence::default()).await;
    assert_eq!(compacted, Err(fenced()));
    let summary = one.put_summary(session(1), Sequence::new(1), Bytes::new()).await;
    assert_eq!(summary, Err(fenced()));
    let set = one.put_cursor(cursor(Some(session(1))), Some(Bytes::new())).await;
    assert_eq!(set, Err(fenced()));
    assert_eq!(one.delete_session(session(1), vec![thread(1)]).await, Err(fenced()));
    let source = TranscriptSource {
        session: session(1),
        thread: thread(1),
        generation: Generation::new(1),
        batch: 1,
    };
    let pending = one.append_transcript(source, Vec::new(), 1_000).await;
    assert_eq!(pending.durable().await, Err(fenced()));
    assert_eq!(read_all(&two, session(1)).await, stored(session(1), 1));
}

pub(super) async fn leaving_member_claims_nothing([one, two]: [Store; 2]) {
    created(&two, session(1), 1).await;
    two.release(session(1), epoch()).await.unwrap();
    let leaving = Beat {
        state: MemberState::Leaving,
        ..ACTIVE
    };
    assert!(one.beat(leaving).await.unwrap().is_some());
    assert_eq!(
        one.claim(session(1)).await,
        Err(WriteError::Refused(Refusal::NotMember))
    );
    assert_eq!(two.claim(session(1)).await, granted(2));
    let to_leaving = two.hand_over(session(1), Epoch::new(2), one.member()).await;
    assert_eq!(to_leaving, Ok(false));
    assert_eq!(two.claim(session(1)).await, granted(3), "it stays");
}

pub(super) async fn beat_shows_all_members([one, two]: [Store; 2]) {
    assert!(one.is_shared() && two.is_shared());
    assert_ne!(one.member(), two.member());
    one.beat(ACTIVE).await.unwrap();
    let mut members = two.beat(ACTIVE).await.unwrap().unwrap();
    members.sort_by(|a, b| a.info.name.cmp(&b.info.name));
    let [of_one, of_two] = &members[..] else {
        panic!("{members:?}")
    };
    assert_eq!((of_one.id, of_two.id), (one.member(), two.member()));
    assert_eq!((of_one.last, of_one.beats), (ACTIVE, 1));
    assert_eq!(of_one.info.address, "http://one");
    assert_eq!(of_two.info.release, "1.2.3");
}

pub(super) async fn texts_of_members_may_have_any_character([one, two]: [Store; 2]) {
    let text = || String::from("'); DROP TABLE members; -- \u{e9}\"");
    let odd = NewMember {
        name: text(),
        address: text(),
        release: text(),
    };
    two.join(odd.clone()).await.unwrap();
    let members = one.beat(ACTIVE).await.unwrap().unwrap();
    assert!(members.iter().any(|member| member.info == odd), "{members:?}");
}

pub(super) async fn member_that_beats_is_not_removed([one, two]: [Store; 2]) {
    let members = two.beat(ACTIVE).await.unwrap().unwrap();
    let of_one = members.iter().find(|member| member.id == one.member()).unwrap();
    one.beat(ACTIVE).await.unwrap();
    assert_eq!(two.remove_member(of_one.id, of_one.beats).await, Ok(false));
    assert!(one.beat(ACTIVE).await.unwrap().is_some());
}

pub(super) async fn older_member_with_same_name_is_removed([one, two]: [Store; 2]) {
    created(&one, session(1), 1).await;
    let member = NewMember {
        name: String::from("one"),
        address: String::from("http://elsewhere"),
        release: String::new(),
    };
    two.join(member).await.unwrap();
    assert_eq!(one.beat(ACTIVE).await, Ok(None));
    assert_eq!(two.claim(session(1)).await, granted(2));
}

pub(super) async fn due_sessions_of_other_members_are_omitted([one, two]: [Store; 2]) {
    for (store, number) in [(&one, 1), (&two, 2), (&one, 3)] {
        let mut first = batch(session(number), 0, 1);
        first.due = Some(at(10));
        assert_eq!(store.create(None, first).await, Ok(Created::New));
    }
    one.release(session(3), epoch()).await.unwrap();
    let due = |sessions: &[u128]| {
        let due = |number: &u128| Due {
            at: at(10),
            session: session(*number),
        };
        Ok(sessions.iter().map(due).collect::<Vec<_>>())
    };
    assert_eq!(one.due_before(at(99), None, 9).await, due(&[1, 3]));
    assert_eq!(two.due_before(at(99), None, 9).await, due(&[2, 3]));
    assert_eq!(two.due_before(at(99), due(&[2]).unwrap().pop(), 9).await, due(&[3]));
    remove(&one, &two).await;
    assert_eq!(two.due_before(at(99), None, 9).await, due(&[1, 2, 3]));
}

pub(super) async fn database_is_described([one, _]: [Store; 2]) {
    let database = one.database().await.unwrap();
    assert!(
        ["memory", "PostgreSQL "]
            .iter()
            .any(|engine| database.engine.starts_with(engine)),
        "{database:?}"
    );
    assert_eq!(database.synchronous_standbys, "");
}

pub(super) async fn members_agree_on_the_first_proposal([one, two]: [Store; 2]) {
    for (store, proposal) in [(&one, "a"), (&two, "b"), (&one, "c")] {
        let agreed = store.agree("keys", proposal.to_owned()).await;
        assert_eq!(agreed.as_deref(), Ok("a"));
    }
    assert_eq!(two.agree("other", String::from("d")).await.as_deref(), Ok("d"));
}
