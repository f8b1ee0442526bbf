"""The definition of a request type, and the fields that most responses have."""

from typing import Final, NamedTuple

from .field_types import INT16, INT32, STRING, Field
from .schema import Message

ERROR: Final = (Field("error_code", INT16), Field("error_message", STRING, nullable=0))
THROTTLE: Final = Field("throttle_time_ms", INT32)


class Api(NamedTuple):
    """Definition of a request type.

    Attributes:
        key: the protocol's api key.
        name: the protocol's name.
        version_max: versions 0 to this one are supported.
    """

    key: int
    name: str
    version_max: int
    request: Message
    response: Message
