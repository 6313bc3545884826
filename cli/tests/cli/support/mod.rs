//! Shared test support: pairs as processes, terminals and browsers.

pub mod browser;
pub mod screen;
pub mod up;

use std::time::Duration;

use tonic::transport::Channel;
use troupe_proto::supervisor::v1::agent_supervisor_service_client::AgentSupervisorServiceClient;

/// Time limit for all operations on a busy machine.
pub const TIME_LIMIT: Duration = Duration::from_secs(60);

pub type Client = AgentSupervisorServiceClient<Channel>;
