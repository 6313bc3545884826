"""Why a call was refused. The reason is what a program decides by: texts may improve, reasons do not change."""

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
    """What the trailer grpc-status-details-bin says; the reason is empty where it was not Troupe that answered."""
    status = rpc_status.from_call(error)
    for detail in status.details if status is not None else ():
        info = ErrorInfo()
        if detail.Unpack(info) and info.domain == DOMAIN:
            return Refusal(error.code(), info.reason, error.details() or "", dict(info.metadata))
    return Refusal(error.code(), "", error.details() or "")
