//! Following sessions and what their threads do.

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status};
use troupe_proto::supervisor::v1 as pb;

use super::{SupervisorService, call::Call, parse};
use crate::projections::{overview::Filter, watch::SessionsWatch};

/// Maximum number of unread messages per watcher. Changes that occur while the outbox is full are sent later, with
/// their values at that time.
const OUTBOX: usize = 64;

impl SupervisorService {
    pub(super) async fn follow_sessions(
        &self,
        request: Request<pb::WatchSessionsRequest>,
    ) -> Result<ReceiverStream<Result<pb::WatchSessionsResponse, Status>>, Status> {
        let sight = Call::of(&request)?.sight;
        let request = request.into_inner();
        check::wanted_labels("labels", &request.labels)?;
        let watch = SessionsWatch {
            directory: self.directory.clone(),
            filter: Filter {
                labels: request.labels,
                include_closed: request.include_closed,
            },
            sight,
            lifetime: self.clock().jittered(self.config.watch.lifetime),
            last_word: self.config.watch.last_word,
            draining: self.draining.clone(),
        };
        let (outbox, messages) = mpsc::channel(OUTBOX);
        tokio::spawn(watch.run(outbox));
        Ok(ReceiverStream::new(messages))
    }
}
