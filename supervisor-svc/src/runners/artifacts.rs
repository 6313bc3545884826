//! Assembly of artifacts that arrive in pieces.
//!
//! An artifact is durable only with its last piece, so no earlier piece is acknowledged. A runner that attaches again
//! resends all pieces. Therefore this state belongs to one stream and is dropped with it.
//!
//! Acknowledging a report acknowledges all earlier ones. The pieces of an artifact must therefore be consecutive
//! reports of their thread. If another report arrives between them, the artifact is dropped before that report is
//! acknowledged. A thread has at most one unfinished artifact.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use supervisor_log::store::limits::MAX_CONTENT_BYTES;
use troupe_proto::supervisor::v1 as pb;

use crate::domain::ids::{Generation, ReportSequence, ThreadId};

/// The maximum size of an artifact, in bytes.
pub(crate) const MAX_ARTIFACT_BYTES: usize = 16 * 1_024 * 1_024;
/// The maximum total size of unfinished artifacts per stream, in bytes.
pub(crate) const MAX_UNFINISHED_BYTES: usize = 64 * 1_024 * 1_024;
/// The maximum number of unfinished artifacts per stream.
pub(crate) const MAX_UNFINISHED: usize = 256;

const _: () = assert!(MAX_ARTIFACT_BYTES <= MAX_CONTENT_BYTES && MAX_ARTIFACT_BYTES <= MAX_UNFINISHED_BYTES);

/// The position of a report: its thread, attempt and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReportPosition {
    pub thread: ThreadId,
    pub generation: Generation,
    pub sequence: ReportSequence,
}

impl ReportPosition {
    fn is_followed_by(self, next: Self) -> bool {
        let follows = Self {
            sequence: self.sequence.next(),
            ..self
        };
        follows == next
    }
}

/// The result of adding a piece to its artifact.
#[derive(Debug)]
pub(super) enum Added {
    /// The artifact is complete, with all its bytes.
    Whole(pb::ArtifactReport),
    /// More pieces are expected.
    Unfinished,
    /// The artifact is dropped: it is too large, or pieces are missing.
    Dropped,
}

/// The first piece of an artifact, and the bytes of all pieces so far.
#[derive(Debug)]
struct Unfinished {
    first: pb::ArtifactReport,
    bytes: BytesMut,
    /// The position of the last piece.
    last: ReportPosition,
}

/// The unfinished artifacts of a stream, least recently continued first.
#[derive(Debug, Default)]
pub(super) struct UnfinishedArtifacts {
    unfinished: VecDeque<Unfinished>,
}

impl UnfinishedArtifacts {
    /// Takes a report that is not an artifact. Drops the thread's unfinished artifact.
    pub fn interrupt(&mut self, thread: ThreadId) {
        if let Some(artifact) = self.take(thread) {
            artifact.abandon("another report came between its pieces");
        }
    }

    /// Takes a piece or a whole artifact. Its texts must be within their limits.
    pub fn add(&mut self, position: ReportPosition, piece: pb::ArtifactReport) -> Added {
        let mut artifact = match self.take(position.thread) {
            Some(before) if before.is_continued_by(position, &piece) => before,
            before => {
                if let Some(before) = before {
                    before.abandon("the next report was not its next piece");
                }
                if !piece.append && !piece.more {
                    return Added::Whole(piece);
                }
                let begun = Unfinished::begin(position, &piece);
                if piece.append {
                    begun.abandon("its beginning is missing");
                    return Added::Dropped;
                }
                begun
            }
        };
        if artifact.bytes.len() + piece.data.len() > MAX_ARTIFACT_BYTES {
            artifact.abandon("it is larger than 16 MiB");
            return Added::Dropped;
        }
        artifact.bytes.extend_from_slice(&piece.data);
        artifact.last = position;
        if piece.more {
            self.insert(artifact);
            return Added::Unfinished;
        }
        Added::Whole(pb::ArtifactReport {
            data: artifact.bytes.freeze(),
            ..artifact.first
        })
    }

    fn take(&mut self, thread: ThreadId) -> Option<Unfinished> {
        let position = self
            .unfinished
            .iter()
            .position(|artifact| artifact.last.thread == thread)?;
        self.unfinished.remove(position)
    }

    fn insert(&mut self, artifact: Unfinished) {
        self.unfinished.push_back(artifact);
        while self.unfinished.len() > MAX_UNFINISHED || self.bytes() > MAX_UNFINISHED_BYTES {
            let Some(oldest) = self.unfinished.pop_front() else {
                return;
            };
            oldest.abandon("its runner began too many other artifacts");
        }
    }

    fn bytes(&self) -> usize {
        self.unfinished.iter().map(|artifact| artifact.bytes.len()).sum()
    }
}

impl Unfinished {
    /// Creates an unfinished artifact without bytes.
    fn begin(position: ReportPosition, first: &pb::ArtifactReport) -> Self {
        Self {
            first: pb::ArtifactReport {
                data: Bytes::new(),
                ..first.clone()
            },
            bytes: BytesMut::new(),
            last: position,
        }
    }

    fn is_continued_by(&self, position: ReportPosition, piece: &pb::ArtifactReport) -> bool {
        let same = (piece.turn, &piece.name) == (self.first.turn, &self.first.name);
        piece.append && same && self.last.is_followed_by(position)
    }

    fn abandon(&self, why: &str) {
        tracing::warn!(
            thread = %self.last.thread,
            artifact = self.first.name,
            bytes = self.bytes.len(),
            why,
            "artifact dropped"
        );
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn position(thread: u128, sequence: u64) -> ReportPosition {
        ReportPosition {
            thread: ThreadId::from_uuid(Uuid::from_u128(thread)),
            generation: Generation::new(1),
            sequence: ReportSequence::new(sequence),
        }
    }

    fn piece(append: bool, more: bool, data: &Bytes) -> pb::ArtifactReport {
        pb::ArtifactReport {
            turn: 1,
            name: String::from("log"),
            kind: String::from(if append { "" } else { "report" }),
            data: data.clone(),
            append,
            more,
            ..pb::ArtifactReport::default()
        }
    }

    fn whole(added: Added) -> Option<Bytes> {
        match added {
            Added::Whole(artifact) => {
                assert_eq!(artifact.kind, "report", "the first piece says what it is");
                Some(artifact.data)
            }
            Added::Unfinished | Added::Dropped => None,
        }
    }

    #[test]
    fn missing_piece_drops_the_artifact() {
        let data = Bytes::from_static(b"x");
        for (next, piece_of) in [
            (position(1, 3), piece(true, false, &data)),
            (
                ReportPosition {
                    generation: Generation::new(2),
                    ..position(1, 2)
                },
                piece(true, false, &data),
            ),
            (
                position(1, 2),
                pb::ArtifactReport {
                    name: String::from("other"),
                    ..piece(true, false, &data)
                },
            ),
            (
                position(1, 2),
                pb::ArtifactReport {
                    turn: 2,
                    ..piece(true, false, &data)
                },
            ),
        ] {
            let mut pieces = UnfinishedArtifacts::default();
            assert!(matches!(
                pieces.add(position(1, 1), piece(false, true, &data)),
                Added::Unfinished
            ));
            assert!(matches!(pieces.add(next, piece_of), Added::Dropped), "{next:?}");
            assert!(pieces.unfinished.is_empty());
        }
    }

    #[test]
    fn pieces_of_different_threads_are_independent() {
        let data = Bytes::from_static(b"x");
        let mut pieces = UnfinishedArtifacts::default();
        for thread in 1..=2 {
            pieces.add(position(thread, 1), piece(false, true, &data));
        }
        for thread in 1..=2 {
            let added = pieces.add(position(thread, 2), piece(true, false, &data));
            assert_eq!(whole(added).as_deref(), Some(&b"xx"[..]));
        }
    }

    #[test]
    fn too_many_unfinished_artifacts_drop_the_oldest() {
        let data = Bytes::from(vec![0; MAX_ARTIFACT_BYTES]);
        let mut pieces = UnfinishedArtifacts::default();
        for thread in 1..=5 {
            pieces.add(position(thread, 1), piece(false, true, &data));
        }
        assert_eq!(pieces.bytes(), MAX_UNFINISHED_BYTES);
        let nothing = Bytes::new();
        let ends: Vec<bool> = (1..=5)
            .map(|thread| whole(pieces.add(position(thread, 2), piece(true, false, &nothing))).is_some())
            .collect();
        assert_eq!(ends, [false, true, true, true, true]);

        for thread in 0..=MAX_UNFINISHED as u128 {
            pieces.add(position(thread, 1), piece(false, true, &nothing));
        }
        assert_eq!(pieces.unfinished.len(), MAX_UNFINISHED);
    }
}
