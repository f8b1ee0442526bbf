"""Schemas of the requests of a login, for all supported versions.

Source: the protocol's message definitions, as of Kafka 3.9.
"""

from typing import Final

from .api import Api
from .api_keys import SASL_AUTHENTICATE, SASL_HANDSHAKE
from .field_types import BYTES, INT16, INT64, STRING, Array, Field
from .schema import Message

SASL_HANDSHAKE_API: Final = Api(
    SASL_HANDSHAKE,
    "SaslHandshake",
    1,
    Message(Field("mechanism", STRING), flexible=99),
    Message(Field("error_code", INT16), Field("mechanisms", Array(STRING)), flexible=99),
)

SASL_AUTHENTICATE_API: Final = Api(
    SASL_AUTHENTICATE,
    "SaslAuthenticate",
    2,
    Message(Field("auth_bytes", BYTES), flexible=2),
    Message(
        Field("error_code", INT16),
        Field("error_message", STRING, nullable=0),
        Field("auth_bytes", BYTES),
        Field("session_lifetime_ms", INT64, since=1),
        flexible=2,
    ),
)
