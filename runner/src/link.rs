//! Opens the stream to the supervisor. The runner state handles its messages.

use std::time::Duration;

use svc_kit::shown_token::ShownToken;
use tokio::{
    sync::mpsc,
    time::{Interval, MissedTickBehavior, interval, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Code, Request, Status, Streaming,
    transport::{self, Channel, Endpoint},
};
use troupe_client::tls::{self, ClientFiles};
use troupe_proto::{
    MAX_MESSAGE_BYTES,
    supervisor::v1::{
        AttachRequest, AttachResponse, RunnerHello, RunnerWelcome, attach_request, attach_response,
        thread_runner_service_client::ThreadRunnerServiceClient,
    },
};

use crate::{bearer::Bearer, config::RunnerConfig, error::RunnerError};

/// Maximum number of messages that wait for the connection.
const OUTGOING: usize = 64;
/// Time limit for connecting, and for the welcome.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of pings. Without pings a lost supervisor would not be detected.
const PING_EVERY: Duration = Duration::from_secs(20);
/// Time limit for the answer to a ping. After it, the connection is closed.
const PING_ANSWER: Duration = Duration::from_secs(10);
/// The lease if the welcome contains none.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);
/// Maximum lease: the wire format permits values that are outside of the clock's range.
const LONGEST_LEASE: Duration = Duration::from_secs(24 * 60 * 60);
/// Minimum heartbeat interval.
const SHORTEST_HEARTBEAT: Duration = Duration::from_millis(50);
/// Maximum heartbeat interval.
const LONGEST_HEARTBEAT: Duration = Duration::from_secs(60);

/// The supervisor's address, and the settings for calling it.
#[derive(Clone, Debug)]
pub(crate) struct Supervisor {
    endpoint: Endpoint,
    tls: ClientFiles,
    token: Option<ShownToken>,
}

impl Supervisor {
    pub(crate) fn new(config: &RunnerConfig) -> Result<Self, RunnerError> {
        let bad_url = || RunnerError::BadSupervisorUrl(config.supervisor_url.clone());
        let endpoint = Endpoint::from_shared(config.supervisor_url.clone()).map_err(|_| bad_url())?;
        if endpoint.uri().scheme().is_none() {
            return Err(bad_url());
        }
        Ok(Self {
            endpoint: endpoint
                .connect_timeout(WELCOME_TIMEOUT)
                .http2_keep_alive_interval(PING_EVERY)
                .keep_alive_timeout(PING_ANSWER)
                .keep_alive_while_idle(true),
            tls: config.tls.clone(),
            token: config.token.clone(),
        })
    }

    /// Returns a connection for the threads' tools. It is separate from the stream's connection, because a draining
    /// supervisor closes connections with a long-lived stream.
    pub(crate) fn channel_for_tools(&self) -> Channel {
        tls::channel(&self.endpoint, &self.tls)
    }
}

/// The reason why there is no stream, or why it broke.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("the supervisor cannot be reached")]
    Unreachable(#[source] transport::Error),
    #[error("the supervisor answered {:?}: {}", .0.code(), .0.message())]
    Refused(Status),
    #[error("the supervisor did not send its welcome within {WELCOME_TIMEOUT:?}")]
    Silent,
    #[error("the supervisor sent another message before its welcome")]
    NoWelcome,
    #[error("the supervisor ended the stream")]
    Ended,
    #[error("the token has characters that metadata cannot carry")]
    Unsendable,
}

impl LinkError {
    /// Returns the permanent error of a runner that was never attached. `None`: a retry may succeed.
    pub(crate) fn final_refusal(&self) -> Option<RunnerError> {
        match self {
            Self::Refused(status) => match status.code() {
                Code::InvalidArgument | Code::Unauthenticated | Code::PermissionDenied | Code::Unimplemented => {
                    Some(RunnerError::Refused {
                        code: status.code(),
                        message: status.message().to_owned(),
                    })
                }
                _ => None,
            },
            Self::Unsendable => Some(RunnerError::BadToken),
            Self::Unreachable(_) | Self::Silent | Self::NoWelcome | Self::Ended => None,
        }
    }
}

/// An open stream after hello and welcome.
pub(crate) struct Link {
    pub(crate) outgoing: mpsc::Sender<AttachRequest>,
    pub(crate) incoming: Streaming<AttachResponse>,
    pub(crate) heartbeat: Interval,
    /// How long the supervisor waits for this runner after the stream has ended. After that it settles the threads or
    /// places them elsewhere.
    pub(crate) lease: Duration,
}

impl Link {
    pub(crate) async fn open(supervisor: &Supervisor, hello: RunnerHello) -> Result<(Self, RunnerWelcome), LinkError> {
        let connected = tls::connect(supervisor.endpoint.clone(), &supervisor.tls).await;
        let channel = connected.map_err(LinkError::Unreachable)?;
        timeout(WELCOME_TIMEOUT, Self::exchange_hello(supervisor, channel, hello))
            .await
            .unwrap_or(Err(LinkError::Silent))
    }

    async fn exchange_hello(
        supervisor: &Supervisor,
        channel: Channel,
        hello: RunnerHello,
    ) -> Result<(Self, RunnerWelcome), LinkError> {
        let mut client = ThreadRunnerServiceClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        let (outgoing, stream) = mpsc::channel(OUTGOING);
        // Queued before the call, because the supervisor may not answer the call until it has received the hello.
        let hello = AttachRequest {
            message: Some(attach_request::Message::Hello(hello)),
        };
        outgoing.try_send(hello).map_err(|_| LinkError::Ended)?;
        let mut request = Request::new(ReceiverStream::new(stream));
        if let Some(token) = &supervisor.token {
            // Reads the current token, because the token of the previous stream may have expired.
            let bearer = Bearer::new(token.present().expose()).map_err(|_| LinkError::Unsendable)?;
            bearer.authorize(&mut request);
        }
        let mut incoming = client.attach(request).await.map_err(LinkError::Refused)?.into_inner();
        let first = incoming
            .message()
            .await
            .map_err(LinkError::Refused)?
            .ok_or(LinkError::Ended)?;
        let Some(attach_response::Message::Welcome(welcome)) = first.message else {
            return Err(LinkError::NoWelcome);
        };
        let lease = lease(&welcome);
        let mut heartbeat = interval(heartbeat_interval(lease));
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let link = Self {
            outgoing,
            incoming,
            heartbeat,
            lease,
        };
        Ok((link, welcome))
    }
}

fn lease(welcome: &RunnerWelcome) -> Duration {
    welcome
        .lease
        .and_then(|lease| Duration::try_from(lease).ok())
        .filter(|lease| !lease.is_zero())
        .map_or(DEFAULT_LEASE, |lease| lease.min(LONGEST_LEASE))
}

/// Returns the heartbeat interval: a third of the lease, within its limits.
fn heartbeat_interval(lease: Duration) -> Duration {
    (lease / 3).clamp(SHORTEST_HEARTBEAT, LONGEST_HEARTBEAT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::ProcessProgram;

    fn supervisor(url: &str) -> Result<Supervisor, RunnerError> {
        Supervisor::new(&RunnerConfig::new(
            "r",
            url,
            ProcessProgram::new("true", [""; 0]),
            "/tmp",
        ))
    }

    #[test]
    fn url_without_scheme_is_rejected() {
        assert!(supervisor("http://127.0.0.1:50052").is_ok());
        assert!(matches!(
            supervisor("127.0.0.1:50052"),
            Err(RunnerError::BadSupervisorUrl(_))
        ));
        assert!(matches!(supervisor("not a url"), Err(RunnerError::BadSupervisorUrl(_))));
    }

    #[test]
    fn heartbeat_interval_is_a_third_of_lease() {
        let interval = |seconds| {
            heartbeat_interval(lease(&RunnerWelcome {
                lease: Some(prost_types::Duration { seconds, nanos: 0 }),
                ..Default::default()
            }))
        };
        assert_eq!(interval(9), Duration::from_secs(3));
        assert_eq!(interval(0), Duration::from_secs(10));
        assert_eq!(interval(i64::MAX), LONGEST_HEARTBEAT);
        assert_eq!(
            heartbeat_interval(lease(&RunnerWelcome::default())),
            Duration::from_secs(10)
        );
    }

    #[test]
    fn only_permanent_rejection_is_final() {
        assert!(
            LinkError::Refused(Status::unauthenticated("who?"))
                .final_refusal()
                .is_some()
        );
        assert!(
            LinkError::Refused(Status::unavailable("later"))
                .final_refusal()
                .is_none()
        );
        assert!(LinkError::Silent.final_refusal().is_none());
    }
}
