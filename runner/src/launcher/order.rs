//! The messages between a launcher and its callers. Both have the same release.

use std::{
    ffi::OsString,
    io::{self, IoSlice, IoSliceMut, Read as _, Write as _},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use crate::allowed_paths::AllowedPaths;

/// The maximum length of an order, in bytes.
const MAX_ORDER_BYTES: usize = 16 * 1024 * 1024;
/// The number of a program's standard streams.
const STREAMS: usize = 3;

/// Prevents other programs from inheriting the streams.
#[cfg(target_os = "linux")]
const CLOSED_IN_PROGRAMS: RecvFlags = RecvFlags::CMSG_CLOEXEC;
/// Other systems have no such flag. Launchers are for containers, which run Linux.
#[cfg(not(target_os = "linux"))]
const CLOSED_IN_PROGRAMS: RecvFlags = RecvFlags::empty();

/// A program to start. Strings of the operating system are kept unchanged. An unknown field is an error, because a
/// restriction of another release must not be ignored.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Order {
    pub(super) command: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) directory: OsString,
    /// The complete environment of the program.
    pub(super) environment: Vec<(OsString, OsString)>,
    /// The paths that Landlock permits. `None`: no restriction.
    pub(super) allowed: Option<AllowedPaths>,
}

/// The result of an order.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum End {
    /// The program ended with this exit status. If a signal ended it, the status is 128 plus the signal's number, as in
    /// shells.
    Exited(u8),
    /// The kernel killed the program, because its container has used all of its memory.
    OutOfMemory,
    /// The program could not be started.
    NotStarted(String),
}

/// Sends an order with the streams of the program.
pub(super) fn send(stream: &UnixStream, order: &Order, streams: &[BorrowedFd<'_>; STREAMS]) -> io::Result<()> {
    let order = serde_json::to_vec(order)?;
    let length = u32::try_from(order.len()).map_err(io::Error::other)?.to_be_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STREAMS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(streams));
    let sent = sendmsg(stream, &[IoSlice::new(&length)], &mut control, SendFlags::empty())?;
    let mut stream = stream;
    stream.write_all(&length[sent..])?;
    stream.write_all(&order)
}

/// Receives an order with the streams of the program.
pub(super) fn receive(stream: &UnixStream) -> io::Result<(Order, [OwnedFd; STREAMS])> {
    let mut length = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(STREAMS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        stream.as_fd(),
        &mut [IoSliceMut::new(&mut length)],
        &mut control,
        CLOSED_IN_PROGRAMS,
    )?;
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let streams: Vec<OwnedFd> = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(streams) => Some(streams),
            _ => None,
        })
        .flatten()
        .collect();
    let streams = streams
        .try_into()
        .map_err(|_| io::Error::other("the order has no streams"))?;
    let mut stream = stream;
    stream.read_exact(&mut length[received.bytes..])?;
    let length = u32::from_be_bytes(length) as usize;
    if length > MAX_ORDER_BYTES {
        return Err(io::Error::other(format!(
            "the order has {length} bytes; at most {MAX_ORDER_BYTES} are accepted"
        )));
    }
    let mut order = vec![0; length];
    stream.read_exact(&mut order)?;
    Ok((serde_json::from_slice(&order)?, streams))
}
