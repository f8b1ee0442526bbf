"""Recorded bytes of each version of the protocol. `python -m tests.transports.tcp.wire.recorded` writes the new.

A version that is released is never written again: later versions have to understand its bytes.
"""

import base64
from pathlib import Path
from typing import Any, Final

import msgspec

from kactl.decide.messages import sessions
from kactl.decide.messages.routes import Delta, RemovedColumns, Version, Watch
from kactl.model import Endpoint
from kactl.testing.contracts.link_support import ROUTES
from kactl.testing.contracts.network import EXCHANGES
from kactl.transports.tcp import handshake, wire
from kactl.transports.tcp.handshake import VERSION_MAX
from kactl.transports.tcp.identity import Role

FOLDER: Final = Path(__file__).with_name("recordings")
INCARNATION: Final = bytes(range(16))
HELLO: Final = handshake.Hello(1, 1, "kactl 0.1", "kactl", Role.PARTICIPANT, "3", bytes(32), INCARNATION)


def samples() -> dict[str, tuple[wire.Family, Any]]:
    """Returns messages by name, with the family that each is decoded as."""
    from .test_messages import REPORTS, REQUESTS

    found: dict[str, tuple[wire.Family, Any]] = {}
    for number, (order, response) in enumerate(EXCHANGES):
        found[f"order {number}"] = wire.ORDERS, order
        found[f"response {number}"] = wire.RESPONSES, response
    found |= {type(request).__name__: (wire.REQUESTS, request) for request, _ in REQUESTS}
    found["FollowerReports"] = wire.PEER_MESSAGES, REPORTS
    endpoint = Endpoint("P", "host", 7373)
    for request in (
        sessions.Register(3, INCARNATION, 6_000, (endpoint,), "r1", (("f", 1, 2),), endpoint),
        sessions.Heartbeat(3, 41, 7),
        sessions.Goodbye(3, 41),
        sessions.VerifyEndpoint(3, INCARNATION, endpoint),
    ):
        found[type(request).__name__] = wire.SESSIONS, request
    for answer in (
        sessions.Registered(41, 6_000, 2),
        sessions.Granted(7, 6_000, 2, 90),
        sessions.Unconfirmed(7, 2),
        sessions.Closed(41),
        sessions.EndpointVerified(2),
        sessions.Refused("BrokerIdTaken", "another session", 7),
        sessions.NotController(100, "host:7373", 2),
    ):
        found[type(answer).__name__] = wire.ANSWERS_OF_SESSIONS, answer
    found["Watch"] = wire.WATCHES, Watch(Version(5, 6), 1_000, ("orders",))
    found["Delta"] = wire.ROUTES, Delta(Version(5, 7), 3.0, None, ROUTES, RemovedColumns())
    found["Hello"] = wire.Family(handshake.Hello), HELLO
    return found


def encoded(message: Any) -> bytes:
    return msgspec.msgpack.encode(message) if isinstance(message, handshake.Hello) else wire.encode(message)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    lines = [f"{name}\t{base64.b64encode(encoded(message)).decode()}" for name, (_, message) in samples().items()]
    (FOLDER / f"version-{VERSION_MAX}.tsv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
