//! Calls of services in this process with arbitrary bytes as messages.

use std::time::Duration;

use prost::bytes::{Buf as _, Bytes};
use svc_kit::encoded::RawEncoder;
use tokio::{runtime::Builder, time::timeout};
use tokio_stream::Stream;
use tonic::{
    Code, Request, Status, Streaming,
    body::Body,
    client::{Grpc, GrpcService},
    codec::{Codec, DecodeBuf, Decoder},
    codegen::{Body as HttpBody, StdError, http::uri::PathAndQuery},
};

/// Maximum time to wait for a response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of messages to read from a stream.
const MAX_ANSWERS: usize = 64;

/// Runs the future to completion with simulated time: if all tasks wait, the clock advances to the next deadline.
pub fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(work)
}

/// Opens a call. Returns the status if the call is rejected.
pub async fn open<S, M>(service: S, path: &str, token: Option<&str>, messages: M) -> Result<Streaming<Bytes>, Status>
where
    S: GrpcService<Body>,
    S::ResponseBody: Send + 'static,
    <S::ResponseBody as HttpBody>::Error: Into<StdError>,
    M: Stream<Item = Bytes> + Send + 'static,
{
    let path = PathAndQuery::try_from(path).map_err(|_| Status::unimplemented("the method name is invalid"))?;
    let mut request = Request::new(messages);
    request.set_timeout(ANSWER_TIMEOUT);
    if let Some(token) = token {
        let value = format!("Bearer {token}").parse().expect("a token is ASCII");
        request.metadata_mut().insert("authorization", value);
    }
    let mut grpc = Grpc::new(service);
    grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
    Ok(grpc.streaming(request, path, Raw).await?.into_inner())
}

/// Reads the responses of a call that arrive within `ANSWER_TIMEOUT`.
pub async fn read_answers(mut answers: Streaming<Bytes>) -> Result<(), Status> {
    for _ in 0..MAX_ANSWERS {
        match timeout(ANSWER_TIMEOUT, answers.message()).await {
            Ok(Ok(Some(_))) => {}
            Ok(Ok(None)) | Err(_) => break,
            Ok(Err(status)) => return Err(status),
        }
    }
    Ok(())
}

/// Checks that a call got a response, or an error with a message, and that the service did not fail.
pub fn check(answer: Result<(), Status>) {
    let Err(status) = answer else { return };
    // tonic's message for bytes that are not valid Protobuf.
    let is_malformed = status.message().starts_with("failed to decode Protobuf message");
    let has_failed = matches!(status.code(), Code::Unknown | Code::Internal | Code::DataLoss);
    assert!(is_malformed || !has_failed, "{status:?}");
    // tonic returns no message for an unknown method.
    let has_message = !status.message().is_empty() || status.code() == Code::Unimplemented;
    assert!(has_message, "{status:?}");
}

/// A codec that passes bytes through.
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = RawEncoder;
    type Decoder = Self;

    fn encoder(&mut self) -> RawEncoder {
        RawEncoder
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}
