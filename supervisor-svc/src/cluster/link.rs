//! The stream on which this supervisor forwards short calls to another one.
//!
//! The calls of a stream share its headers, its flow control and most of its packets. Forwarding a call on a separate
//! stream would cost as much processor time as the work of the call.
//!
//! A link has one stream and ends with it. Invariant: a call that was not written to the stream ends with
//! [`LinkError::NotReached`], and any other call ends with its answer or with [`LinkError::Lost`].

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, HeaderName, HeaderValue};
use svc_kit::lock::lock;
use tokio::sync::{mpsc, oneshot};
use tonic::{Request, Status, Streaming, metadata::MetadataMap, transport::Channel};
use troupe_proto::{
    MAX_MESSAGE_BYTES,
    cluster::v1::{ForwardRequest, ForwardResponse, Header, member_service_client::MemberServiceClient},
};

/// Maximum number of calls that wait to be written.
const WAITING: usize = 1024;

/// Maximum total length of the headers and trailers of an answer, in bytes.
const MAX_HEADERS: usize = 64 * 1024;

/// Encodes headers or trailers.
pub(super) fn to_pairs(headers: &HeaderMap) -> Vec<Header> {
    let pairs = headers.iter().map(|(name, value)| Header {
        name: name.as_str().to_owned(),
        value: Bytes::copy_from_slice(value.as_bytes()),
    });
    pairs.collect()
}

/// Decodes headers or trailers. Returns `None` if one is malformed.
pub(super) fn from_pairs(pairs: Vec<Header>) -> Option<HeaderMap> {
    let mut headers = HeaderMap::with_capacity(pairs.len());
    for Header { name, value } in pairs {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        headers.append(name, HeaderValue::from_maybe_shared(value).ok()?);
    }
    Some(headers)
}

/// Why a call has no answer.
#[derive(Debug)]
pub(super) enum LinkError {
    /// The peer has not received the call.
    NotReached,
    /// The peer may have received the call.
    Lost(String),
}

type Answer = Result<ForwardResponse, LinkError>;

/// A call that waits to be written. If the call is dropped unwritten, its caller gets [`LinkError::NotReached`].
struct Outgoing {
    request: ForwardRequest,
    answer: oneshot::Sender<Answer>,
}

/// A stream to another supervisor. It ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct Link(mpsc::Sender<Outgoing>);

impl Link {
    /// Opens the stream, with these headers.
    pub fn open(channel: Channel, headers: MetadataMap) -> Self {
        let (calls, waiting) = mpsc::channel(WAITING);
        let (opened, when_opened) = oneshot::channel();
        let (leaving, when_leaving) = oneshot::channel();
        let unanswered = Arc::new(Unanswered::default());
        let requests = Requests {
            calls: waiting,
            opened: Some(when_opened),
            leaving: Some(when_leaving),
            unanswered: Arc::clone(&unanswered),
        };
        let mut request = Request::new(stream::unfold(requests, Requests::next));
        *request.metadata_mut() = headers;
        let mut client = MemberServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES + MAX_HEADERS);
        tokio::spawn(async move {
            let cause = match client.forward(request).await {
                Ok(response) => {
                    let _ = opened.send(());
                    read(response.into_inner(), &unanswered, leaving).await
                }
                Err(status) => status,
            };
            unanswered.end(cause.message());
        });
        Self(calls)
    }

    /// Returns whether the stream takes no more calls.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Makes a call.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub async fn call(&self, request: ForwardRequest) -> Answer {
        let (answer, answered) = oneshot::channel();
        // If the stream has ended, the call is dropped like any other that was not written.
        let _ = self.0.send(Outgoing { request, answer }).await;
        answered.await.unwrap_or(Err(LinkError::NotReached))
    }
}

/// Passes the answers to their callers until the stream ends. Returns why the stream has ended.
async fn read(
    mut answers: Streaming<ForwardResponse>,
    unanswered: &Unanswered,
    leaving: oneshot::Sender<()>,
) -> Status {
    let mut leaving = Some(leaving);
    loop {
        match answers.message().await {
            Ok(Some(answer)) if answer.call == 0 => {
                // A dropped sender also means that the peer takes no more calls.
                leaving.take();
            }
            Ok(Some(answer)) => unanswered.answer(answer),
            Ok(None) => return Status::unavailable("the supervisor has ended the stream"),
            Err(status) => return status,
        }
    }
}

/// The calls that were written and have no answer yet.
struct Unanswered(Mutex<Option<Calls>>);

#[derive(Default)]
struct Calls {
    last: u64,
    calls: HashMap<u64, oneshot::Sender<Answer>>,
}

impl Default for Unanswered {
    fn default() -> Self {
        Self(Mutex::new(Some(Calls::default())))
    }
}

impl Unanswered {
    /// Adds a call and returns its number; `None` if the stream has ended.
    fn add(&self, answer: oneshot::Sender<Answer>) -> Option<u64> {
        let mut calls = lock(&self.0);
        let open = calls.as_mut()?;
        open.last += 1;
        open.calls.insert(open.last, answer);
        Some(open.last)
    }

    fn answer(&self, answer: ForwardResponse) {
        let caller = lock(&self.0).as_mut().and_then(|open| open.calls.remove(&answer.call));
        if let Some(caller) = caller {
            // The caller may have disconnected.
            let _ = caller.send(Ok(answer));
        }
    }

    fn end(&self, cause: &str) {
        let calls = lock(&self.0).take().unwrap_or_default().calls;
        for caller in calls.into_values() {
            let _ = caller.send(Err(LinkError::Lost(cause.to_owned())));
        }
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        // The remaining calls were written.
        self.end("the stream has ended");
    }
}

/// The calls of a stream that are still to be written. Calls that remain when this is dropped were not written.
struct Requests {
    calls: mpsc::Receiver<Outgoing>,
    opened: Option<oneshot::Receiver<()>>,
    /// Completes when the peer takes no more calls on this stream.
    leaving: Option<oneshot::Receiver<()>>,
    unanswered: Arc<Unanswered>,
}

impl Requests {
    async fn next(mut self) -> Option<(ForwardRequest, Self)> {
        if let Some(opened) = self.opened.take() {
            opened.await.ok()?;
        }
        if let Some(leaving) = &mut self.leaving {
            tokio::select! {
                biased;
                _ = leaving => {
                    self.leaving = None;
                    self.calls.close();
                }
                call = self.calls.recv() => return self.write(call?),
            }
        }
        let call = self.calls.recv().await;
        self.write(call?)
    }

    /// Gives a call its number. Returns `None` if the stream has ended.
    fn write(self, call: Outgoing) -> Option<(ForwardRequest, Self)> {
        let request = ForwardRequest {
            call: self.unanswered.add(call.answer)?,
            ..call.request
        };
        Some((request, self))
    }
}
