"""JSON decoding of nodes. Any client may write any content."""

from typing import Annotated, Final, TypeVar

import msgspec

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
# Length of the quote of a malformed node in a log line.
EXCERPT: Final = 80

BrokerId = Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]
# One partition with many replicas costs a column for each of them, over all partitions. A hundred times any realistic
# number fits; a longer list is an error.
REPLICAS_MAX: Final = 1_000
BrokerIds = Annotated[list[BrokerId], msgspec.Meta(max_length=REPLICAS_MAX)]
Leader = Annotated[int, msgspec.Meta(ge=-1, le=INT32_MAX)]
Count = Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]

_Node = TypeVar("_Node")


class Malformed(ValueError):
    """A node with unexpected content. The message quotes it."""


def decode(decoder: "msgspec.json.Decoder[_Node]", data: bytes | None) -> _Node:
    """Returns the decoded content of a node.

    Raises:
        Malformed: the content is unexpected.
    """
    try:
        if data is not None and not data.isascii():
            data.decode()  # the decoder does not validate skipped text
        return decoder.decode(data or b"")
    # Invalid UTF-8 and integers out of range raise other kinds of ValueError.
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Malformed(f"{error} in {excerpt(data)}") from None


def excerpt(data: bytes | None) -> str:
    """Returns the beginning of a node, for a message."""
    return "no data" if data is None else repr(data[:EXCERPT]) + ("..." if len(data) > EXCERPT else "")


def decoder(kind: type[_Node]) -> "msgspec.json.Decoder[_Node]":
    return msgspec.json.Decoder(kind)
