//! Calls with opaque messages: a client with the same cost for every method.

use std::{net::SocketAddr, sync::Arc, time::Instant};

use futures::future::BoxFuture;
use prost::bytes::{Buf as _, BufMut as _};
use tonic::{
    Request, Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::{Bytes, http::uri::PathAndQuery},
    transport::Channel,
};
use troupe_tests::client::endpoint;

use crate::arrivals::{Call, Target};

/// Repeats the same call.
#[derive(Clone, Debug)]
pub(crate) struct Opaque {
    pub(crate) address: SocketAddr,
    pub(crate) path: &'static str,
    pub(crate) request: Bytes,
    pub(crate) connections: usize,
}

impl Target for Opaque {
    async fn begin(&self) -> Call {
        let mut channels = Vec::with_capacity(self.connections);
        for _ in 0..self.connections {
            channels.push(endpoint(self.address).connect().await.unwrap());
        }
        let Self { path, request, .. } = self.clone();
        Arc::new(move |number: usize| -> BoxFuture<'static, Instant> {
            let (channel, request) = (channels[number % channels.len()].clone(), request.clone());
            Box::pin(async move {
                call(channel, path, request).await;
                Instant::now()
            })
        })
    }

    fn connections(&self) -> usize {
        self.connections
    }
}

/// Makes one call and reads the bytes of its response without decoding them.
pub(crate) async fn call(channel: Channel, path: &'static str, request: Bytes) -> Bytes {
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.unwrap();
    let path = PathAndQuery::from_static(path);
    let answer = grpc.unary(Request::new(request), path, AsIs).await;
    answer.unwrap().into_inner()
}

/// A codec that sends and receives bytes unchanged.
#[derive(Clone, Copy)]
pub(crate) struct AsIs;

impl Codec for AsIs {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for AsIs {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}

impl Decoder for AsIs {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
