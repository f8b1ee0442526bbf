"""Guard for requests: the token in a header, compared by the server."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from kactl.model.errors import BadRequest, StaleToken
from kactl.participant.leases.leader import Leader
from kactl.participant.leases.token import FencingToken

HEADER: Final = "Kactl-Fence"
# More partitions than one service guards, at about 200 bytes each.
PARTITIONS_MAX: Final = 100_000
_VALUE: Final = re.compile(r"([a-zA-Z0-9._-]{1,249}-[0-9]{1,10});([0-9]{1,10})\.([0-9]{1,10});([0-9a-f]{32})")
_EPOCH_MAX: Final = 2**31 - 1

# (partition and topic id, token as a number) -> the highest token so far, this one included
Advance = Callable[[str, int], int]


def headers(leader: Leader) -> dict[str, str]:
    """Returns the headers of a request by a leader, for a server with a `HeaderFence`.

        await client.put(url, headers=headers(leader), ...)

    Raises:
        LeadershipLost: the lease has ended.
    """
    leader.check()
    return {HEADER: f"{leader.partition};{leader.token};{leader.token.topic_id.hex()}"}


class HeaderFence:
    """Compares the tokens of requests in a server.

        fence = HeaderFence()
        token = fence.admit(request.headers)  # StaleToken: answer 409

    A server with several processes needs `advance`, since each process would keep a highest token of its own.

    Args:
        advance: (key, token) -> stores the token for a key if it is higher than the stored one, in one atomic step, and
            returns the highest. None keeps the tokens in memory, for at most PARTITIONS_MAX partitions.
    """

    def __init__(self, advance: Advance | None = None) -> None:
        self._advance = self._keep if advance is None else advance
        self._highest: dict[str, int] = {}

    def admit(self, headers: Mapping[str, str]) -> FencingToken:
        """Verify a request before it has an effect. Returns its token.

        Raises:
            StaleToken: a request under a higher token was admitted before. Answer 409.
            BadRequest: the request has no header, or an invalid one. Answer 400.
        """
        value = headers.get(HEADER) or next((v for name, v in headers.items() if name.lower() == HEADER.lower()), None)
        if value is None:
            raise BadRequest(HEADER, "the request has no such header: send the headers of kactl.fencing.headers")
        match = _VALUE.fullmatch(value)
        if match is None or max(int(match[2]), int(match[3])) > _EPOCH_MAX:
            raise BadRequest(HEADER, f"{value[:300]!r} is not valid: send the headers of kactl.fencing.headers")
        token = FencingToken(int(match[2]), int(match[3]), bytes.fromhex(match[4]))
        highest = self._advance(f"{match[1]};{match[4]}", token.as_int())
        if highest > token.as_int():
            theirs = FencingToken(highest >> 32, highest & 0xFFFF_FFFF, token.topic_id)
            raise StaleToken(match[1], ours=str(token), highest=str(theirs))
        return token

    def _keep(self, key: str, token: int) -> int:
        highest = self._highest.get(key)
        if highest is None and len(self._highest) >= PARTITIONS_MAX:
            raise BadRequest(HEADER, f"tokens of {PARTITIONS_MAX} partitions are kept already: pass advance=")
        if highest is None or token > highest:
            self._highest[key] = highest = token
        return highest
