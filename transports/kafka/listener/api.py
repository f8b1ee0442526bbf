"""One kind of request, and the fields that most answers have."""

from typing import Final, NamedTuple

from .schema import INT16, INT32, STRING, Field, Message

ERROR: Final = (Field("error_code", INT16), Field("error_message", STRING, nullable=0))
THROTTLE: Final = Field("throttle_time_ms", INT32)


class Api(NamedTuple):
    """One kind of request.

    Attributes:
        key: its number in the protocol.
        name: the protocol's.
        version_max: all from 0 to this are understood.
    """

    key: int
    name: str
    version_max: int
    request: Message
    response: Message
