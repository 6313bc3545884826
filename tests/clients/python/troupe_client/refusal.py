"""The reason of a rejected call. Programs should use the reason: texts may change, reasons do not."""

from __future__ import annotations

from dataclasses import dataclass, field

import grpc.aio
from google.rpc.error_details_pb2 import ErrorInfo
from grpc_status import rpc_status

DOMAIN = "troupe.dev"


@dataclass(frozen=True)
class Refusal:
    """An error of the API."""

    code: grpc.StatusCode
    reason: str
    message: str
    metadata: dict[str, str] = field(default_factory=dict)


def refusal_of(error: grpc.aio.AioRpcError) -> Refusal:
    """Reads the trailer grpc-status-details-bin. The reason is empty if the error does not come from Troupe."""
    status = rpc_status.from_call(error)
    for detail in status.details if status is not None else ():
        info = ErrorInfo()
        if detail.Unpack(info) and info.domain == DOMAIN:
            return Refusal(error.code(), info.reason, error.details() or "", dict(info.metadata))
    return Refusal(error.code(), "", error.details() or "")
