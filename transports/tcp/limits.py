"""Limits of the tcp network."""

from typing import Annotated, Final

import msgspec

_Positive = Annotated[int, msgspec.Meta(gt=0)]
KIB = 1024
MIB = 1024 * KIB
# Every program accepts these sizes, also one that sends less.
PART_BYTES_MAX: Final = 256 * KIB
PART_BYTES_MIN: Final = 4 * KIB
# Of messages to a controller: of sessions and requests for routes, of requests and messages between participants, and
# of responses. A request about 100,000 partitions has 2 MiB.
SESSION_BYTES_MAX: Final = 64 * KIB
REQUEST_BYTES_MAX: Final = 4 * MIB
RESPONSE_BYTES_MAX: Final = 16 * MIB


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a `TcpNetwork`. Errors name the limit that they are about.

    Attributes:
        dial_ms: time for opening a connection.
        handshake_ms: time for the handshake, from the accepted connection to the welcome.
        request_ms: time for the response to a request, and for each MiB of a message that arrives in parts.
        silence_ms: a link without a frame for so long is closed. Half of the shortest session timeout.
        backoff_ms, backoff_max_ms: pause between two rounds of attempts to find the active controller.
        dials: addresses that are tried at the same time.
        part_bytes: size of a part of a message. On a link of 1 MB/s a heartbeat waits 64 ms for a part of 64 KiB.
        lane_bytes: bytes that may wait in each lane of a link. Further messages of that lane are rejected.
        unhandled_bytes: a link with so many bytes in messages that are not handled yet is not read.
        message_bytes: size of a message of a controller. Those of participants and spectators have lower bounds.
        streams: messages and requests of a link that may be incomplete.
        strangers: connections without a complete handshake.
        strangers_per_address: of these, handshakes of one address at a time. Further ones wait. All addresses together
            have twice as many.
    """

    dial_ms: _Positive = 2_000
    handshake_ms: _Positive = 3_000
    request_ms: _Positive = 30_000
    silence_ms: _Positive = 3_000
    backoff_ms: _Positive = 50
    backoff_max_ms: _Positive = 1_000
    dials: _Positive = 3
    part_bytes: Annotated[int, msgspec.Meta(ge=PART_BYTES_MIN, le=PART_BYTES_MAX)] = 64 * KIB
    lane_bytes: _Positive = 16 * MIB
    unhandled_bytes: _Positive = 8 * MIB
    message_bytes: _Positive = 64 * MIB
    streams: _Positive = 10_000
    strangers: _Positive = 256
    strangers_per_address: _Positive = 32
