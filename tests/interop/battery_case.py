"""One request of the battery."""

from typing import Any, Final, NamedTuple

from kactl.transports.kafka.listener.api import Api

TIMEOUT_MS: Final = 30_000
TOPIC, BROKER, LOGGER = 2, 4, 8
INT_MAX: Final = 2**31 - 1
LONG: Final = "x" * 30_000
NOBODY: Final = 77  # no broker has this id


class Case(NamedTuple):
    """One request.

    Attributes:
        name: identifies it in docs/differences.md.
        fields: of the request; or its bytes after the header, of which only the error codes of the response are known.
    """

    name: str
    api: Api
    version: int
    fields: dict[str, Any] | bytes
