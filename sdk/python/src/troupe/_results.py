"""The results of threads and of the items of `Session.map`, which match a JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from .supervisor.v1 import group_pb2

Parsed = TypeVar("Parsed", covariant=True)


class Model(Protocol[Parsed]):
    """A class that has a JSON Schema and checks documents, such as a model of pydantic."""

    def model_json_schema(self) -> dict[str, Any]:
        """Returns the JSON Schema."""
        ...

    def model_validate(self, obj: Any, /) -> Parsed:
        """Returns an object with the content of a document."""
        ...


# A JSON Schema, or a model that has one.
Schema = Mapping[str, Any] | Model[object]
# An item of `Session.map`: the value of `{item}`, or the values of all placeholders.
Item = str | Mapping[str, str]


def schema_text(schema: Schema | None) -> str:
    """Returns the schema as the text that the API expects."""
    if schema is None:
        return ""
    return json.dumps(schema if isinstance(schema, Mapping) else schema.model_json_schema())


@dataclass(frozen=True)
class Row:
    """An item of `Session.map` and its outcome."""

    item: Item
    """The item as it was given."""
    document: str
    """The result, a JSON document. Empty without a result."""
    text: str
    """The last message of the thread, at most 4 KiB."""
    error: str
    """Why the item failed."""
    thread_id: str
    """The id of the thread of the last attempt. Empty if there was no attempt."""
    proto: group_pb2.GroupItemStatus
    """The whole item: attempts, usage and duration."""

    @property
    def state(self) -> str:
        """SUCCEEDED, FAILED or CANCELLED."""
        return group_pb2.GroupItemState.Name(self.proto.state).removeprefix("GROUP_ITEM_STATE_")

    @property
    def is_succeeded(self) -> bool:
        """Whether the item succeeded."""
        return self.proto.state == group_pb2.GROUP_ITEM_STATE_SUCCEEDED

    @property
    def value(self) -> Any:
        """The result as Python objects; None without a result."""
        return json.loads(self.document) if self.document else None

    def parse(self, model: Model[Parsed]) -> Parsed:
        """Returns the result as an object of the model. Raises the error of the model if there is no result."""
        return model.model_validate(self.value)
