//! Methods whose responses are already encoded. A generated service encodes every response itself. This module replaces
//! one method that sends the same response to many callers; all other calls reach the generated service.

use std::{
    convert::Infallible,
    marker::PhantomData,
    task::{Context, Poll},
};

use prost::{
    Message,
    bytes::{BufMut as _, Bytes},
};
use tonic::{
    Status,
    body::Body,
    codec::{BufferSettings, Codec, EncodeBuf, Encoder},
    codegen::{BoxFuture, Service, http},
    server::NamedService,
};
use tonic_prost::{ProstCodec, ProstDecoder};

/// The response to a call, successful or not.
pub type ResponseFuture = BoxFuture<http::Response<Body>, Infallible>;

/// A method that encodes its responses itself.
pub trait EncodedMethod: Clone + Send + Sync + 'static {
    /// Its path: `/package.Service/Method`.
    const PATH: &'static str;

    /// Carries out one call.
    fn call(&self, request: http::Request<Body>) -> ResponseFuture;
}

/// A generated service with one method replaced.
#[derive(Clone, Debug)]
pub struct MethodOverride<S, M> {
    service: S,
    method: M,
}

impl<S, M> MethodOverride<S, M> {
    /// Routes every method except `method` to `service`.
    pub const fn new(service: S, method: M) -> Self {
        Self { service, method }
    }
}

impl<S: NamedService, M> NamedService for MethodOverride<S, M> {
    const NAME: &'static str = S::NAME;
}

impl<S, M> Service<http::Request<Body>> for MethodOverride<S, M>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible, Future = ResponseFuture>,
    M: EncodedMethod,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> ResponseFuture {
        if request.uri().path() == M::PATH {
            self.method.call(request)
        } else {
            self.service.call(request)
        }
    }
}

/// A codec that decodes requests of one type and sends responses that are already encoded.
#[derive(Clone, Copy, Debug)]
pub struct EncodedCodec<T>(PhantomData<T>);

impl<T> Default for EncodedCodec<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message + Default + 'static> Codec for EncodedCodec<T> {
    type Encode = Bytes;
    type Decode = T;
    type Encoder = RawEncoder;
    type Decoder = ProstDecoder<T>;

    fn encoder(&mut self) -> Self::Encoder {
        RawEncoder
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, T>::raw_decoder(BufferSettings::default())
    }
}

/// An encoder that copies the bytes unchanged.
#[derive(Clone, Copy, Debug)]
pub struct RawEncoder;

impl Encoder for RawEncoder {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}
