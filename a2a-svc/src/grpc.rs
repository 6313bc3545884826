//! The gRPC binding.

use std::{pin::Pin, sync::Arc};

use futures::{Stream, StreamExt as _};
use tonic::{Request, Response, Status};

use crate::{
    card::PROTOCOL_VERSION,
    error::{Error, Kind, Result, cut},
    gateway::{Call, Entry, Gateway, Responses},
    metrics::Binding,
    pb::{
        AgentCard, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
        GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest,
        ListTaskPushNotificationConfigsResponse, ListTasksRequest, ListTasksResponse, SendMessageRequest,
        SendMessageResponse, StreamResponse, SubscribeToTaskRequest, Task, TaskPushNotificationConfig,
        a2a_service_server::A2aService,
    },
};

/// Name of the version in headers and metadata.
pub(crate) const VERSION_HEADER: &str = "a2a-version";
/// Name of the position of a subscription in headers and metadata.
pub(crate) const AFTER_HEADER: &str = "troupe-after-sequence";

/// Serves the gateway over gRPC.
pub(crate) struct Grpc(pub(crate) Arc<Gateway>);

type Reply<T> = std::result::Result<Response<T>, Status>;

/// Checks the version of a request. An absent version is 0.3.
///
/// # Errors
///
/// The version is not 1.0.
pub(crate) fn check_version(version: Option<&str>) -> Result<()> {
    let version = version
        .map(str::trim)
        .filter(|version| !version.is_empty())
        .unwrap_or("0.3");
    match version == PROTOCOL_VERSION {
        true => Ok(()),
        false => Err(Error::new(
            Kind::VersionNotSupported,
            format!(
                "the version {:?} of the protocol is not supported; send `A2A-Version: {PROTOCOL_VERSION}`",
                cut(version)
            ),
        )
        .with("supportedVersions", PROTOCOL_VERSION)),
    }
}

/// Parses the position of a subscription.
///
/// # Errors
///
/// The text is not a number.
pub(crate) fn parse_after(text: Option<&str>) -> Result<Option<u64>> {
    text.map(|text| {
        text.trim().parse().map_err(|_| {
            Error::invalid_params(
                AFTER_HEADER,
                "the position must be the number in the metadata `troupe/sequence`",
            )
        })
    })
    .transpose()
}

impl Grpc {
    /// Admits a call. The error is the status of its response.
    fn admit<T>(&self, request: Request<T>, tenant: fn(&T) -> &String) -> std::result::Result<(Call, T), Status> {
        match self.try_admit(&request, tenant(request.get_ref())) {
            Ok(call) => Ok((call, request.into_inner())),
            Err(error) => {
                self.0.metrics.called(Binding::Grpc, Some(&error));
                Err(error.to_status())
            }
        }
    }

    fn try_admit<T>(&self, request: &Request<T>, tenant: &str) -> Result<Call> {
        let metadata = request.metadata();
        let text = |name: &str| metadata.get(name).and_then(|value| value.to_str().ok());
        check_version(text(VERSION_HEADER))?;
        // The layer in front of the service sets the entry.
        let entry = request.extensions().get::<Entry>();
        let entry = entry.ok_or_else(|| Error::internal("the call is not authenticated"))?;
        self.0.admit(entry.clone(), tenant, parse_after(text(AFTER_HEADER))?)
    }

    fn reply<T>(&self, result: Result<T>) -> Reply<T> {
        self.0.metrics.called(Binding::Grpc, result.as_ref().err());
        result.map(Response::new).map_err(|error| error.to_status())
    }
}

#[tonic::async_trait]
impl A2aService for Grpc {
    type SendStreamingMessageStream = Pin<Box<dyn Stream<Item = std::result::Result<StreamResponse, Status>> + Send>>;
    type SubscribeToTaskStream = Self::SendStreamingMessageStream;

    async fn send_message(&self, request: Request<SendMessageRequest>) -> Reply<SendMessageResponse> {
        let (call, request) = self.admit(request, |request| &request.tenant)?;
        self.reply(self.0.send(&call, request).await)
    }

    async fn send_streaming_message(
        &self,
        request: Request<SendMessageRequest>,
    ) -> Reply<Self::SendStreamingMessageStream> {
        let (call, request) = self.admit(request, |request| &request.tenant)?;
        self.reply(self.0.send_streaming(call, request).await.map(streamed))
    }

    async fn get_task(&self, request: Request<GetTaskRequest>) -> Reply<Task> {
        let (call, request) = self.admit(request, |request| &request.tenant)?;
        self.reply(self.0.get(&call, request).await)
    }

    async fn list_tasks(&self, request: Request<ListTasksRequest>) -> Reply<ListTasksResponse> {
        let (call, request) = self.admit(request, |request| &request.tenant)?;
        self.reply(self.0.list(&call, request).await)
    }

    async fn cancel_task(&self, request: Request<CancelTaskRequest>) -> Reply<Task> {
        let (call, request) = self.admit(request, |request| &request.tenant)?;
        self.reply(self.0.cancel(&call, request).await)
    }

    async fn subscribe_to_task(&self, request: Request<SubscribeToTaskRequest>) -> Reply<Self::SubscribeToTaskStream> {
        let (call, request) = self.admit(request, |request| &request.tenant)?;
        self.reply(self.0.subscribe(call, &request.id).await.map(streamed))
    }

    async fn create_task_push_notification_config(
        &self,
        request: Request<TaskPushNotificationConfig>,
    ) -> Reply<TaskPushNotificationConfig> {
        let (call, request) = self.admit(request, |request| &request.tenant)?;
        self.reply(self.0.create_push(&call, request).await)
    }

    async fn get_task_push_notification_config(
        &self,
        request: Request<GetTaskPushNotificationConfigRequest>,
    ) -> Reply<TaskPushNotificationConfig> {
        let (call, request) = self.admit(request, |request| &request.tenant)?;
        self.reply(self.0.get_push(&call, &request.task_id, &request.id).await)
    }

    async fn list_task_push_notification_configs(
        &self,
        request: Request<ListTaskPushNotificationConfigsRequest>,
    ) -> Reply<ListTaskPushNotificationConfigsResponse> {
        let (call, request) = self.admit(request, |request| &request.tenant)?;
        self.reply(self.0.list_push(&call, &request.task_id).await)
    }

    async fn get_extended_agent_card(&self, request: Request<GetExtendedAgentCardRequest>) -> Reply<AgentCard> {
        let (call, _) = self.admit(request, |request| &request.tenant)?;
        self.reply(Ok(self.0.extended_card(&call).await))
    }

    async fn delete_task_push_notification_config(
        &self,
        request: Request<DeleteTaskPushNotificationConfigRequest>,
    ) -> Reply<()> {
        let (call, request) = self.admit(request, |request| &request.tenant)?;
        self.reply(self.0.delete_push(&call, &request.task_id, &request.id).await)
    }
}

/// Returns a stream whose errors are statuses.
fn streamed(responses: Responses) -> <Grpc as A2aService>::SendStreamingMessageStream {
    Box::pin(responses.map(|response| response.map_err(|error| error.to_status())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_served_version_is_accepted() {
        assert!(check_version(Some("1.0")).is_ok());
        for version in [None, Some(""), Some("0.3"), Some("1.1"), Some("2.0"), Some("1.0.0")] {
            assert_eq!(
                check_version(version).err().map(|error| error.kind),
                Some(Kind::VersionNotSupported)
            );
        }
    }
}
