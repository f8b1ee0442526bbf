"""What all nodes have in common: JSON that may be anything, because everybody may write it."""

from typing import Annotated, Final, TypeVar

import msgspec

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
# What a log line quotes of a node that makes no sense.
EXCERPT: Final = 80

BrokerId = Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]
# One partition with many replicas costs a column for each of them, over all partitions. A hundred times what anybody
# uses still fits; a longer list is a mistake.
REPLICAS_MAX: Final = 1_000
BrokerIds = Annotated[list[BrokerId], msgspec.Meta(max_length=REPLICAS_MAX)]
Leader = Annotated[int, msgspec.Meta(ge=-1, le=INT32_MAX)]
Count = Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]

_Node = TypeVar("_Node")


class Malformed(ValueError):
    """A node that holds something else than it should. The message says what was found."""


def decode(decoder: "msgspec.json.Decoder[_Node]", data: bytes | None) -> _Node:
    """What a node holds.

    Raises:
        Malformed: it holds something else.
    """
    try:
        if data is not None and not data.isascii():
            data.decode()  # what the decoder passes over it does not look at
        return decoder.decode(data or b"")
    # A text that is no UTF-8 and numbers that fit no integer come as ValueErrors of other kinds.
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Malformed(f"{error} in {excerpt(data)}") from None


def excerpt(data: bytes | None) -> str:
    """The beginning of a node, for a message."""
    return "no data" if data is None else repr(data[:EXCERPT]) + ("..." if len(data) > EXCERPT else "")


def decoder(kind: type[_Node]) -> "msgspec.json.Decoder[_Node]":
    return msgspec.json.Decoder(kind)
