//! Methods that answer what is encoded already. A generated service encodes each answer by itself; a method that sends the
//! same one to many callers is taken over, and everything else goes on to the generated service.

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

/// What a call is answered with, however it went.
pub type Answer = BoxFuture<http::Response<Body>, Infallible>;

/// A method that encodes its answers itself.
pub trait EncodedMethod: Clone + Send + Sync + 'static {
    /// Its path: `/package.Service/Method`.
    const PATH: &'static str;

    /// Carries out one call.
    fn answer(&self, request: http::Request<Body>) -> Answer;
}

/// A generated service with one of its methods taken over.
#[derive(Clone, Debug)]
pub struct TakenOver<S, M> {
    service: S,
    method: M,
}

impl<S, M> TakenOver<S, M> {
    /// Everything but the method goes to `service`.
    pub const fn new(service: S, method: M) -> Self {
        Self { service, method }
    }
}

impl<S: NamedService, M> NamedService for TakenOver<S, M> {
    const NAME: &'static str = S::NAME;
}

impl<S, M> Service<http::Request<Body>> for TakenOver<S, M>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible, Future = Answer>,
    M: EncodedMethod,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Answer {
        if request.uri().path() == M::PATH {
            self.method.answer(request)
        } else {
            self.service.call(request)
        }
    }
}

/// Takes requests of one kind and sends what is encoded already.
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
    type Encoder = AsItIs;
    type Decoder = ProstDecoder<T>;

    fn encoder(&mut self) -> Self::Encoder {
        AsItIs
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, T>::raw_decoder(BufferSettings::default())
    }
}

/// Encodes nothing more.
#[derive(Clone, Copy, Debug)]
pub struct AsItIs;

impl Encoder for AsItIs {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}
