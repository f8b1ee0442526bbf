"""Tokens that a server accepts, read again when their files change."""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from kactl.model.errors import BadConfig
from kactl.runtime import reloading
from kactl.runtime.clock import Clock
from kactl.runtime.logs import logger
from kactl.runtime.threads import run_in_thread
from kactl.security.access.role import Role
from kactl.security.access.tickets import (
    KEY_BYTES,
    Ticket,
    generation_of,
    read_ticket,
    signed,
    ticket_of_token,
    ticket_of_user,
)
from kactl.security.access.tokens import ID_BYTES, SECRET_BYTES, TokenRecord, Tokens, new_token

from .login_codes import LoginCodes
from .token_file import LOCAL_NAME, local_token, moment, read_tokens, ticket_key

log = logger(__name__)

# A revoked token must end within two seconds.
POLL_S: Final = 1.0
WARN_MS: Final = 14 * 86_400_000

# Of the token file, the local token and the key.
_Versions = tuple[reloading.FileVersion, reloading.FileVersion, reloading.FileVersion]


class Credentials:
    """The accepted tokens.

    Args:
        tokens: the token file, which need not exist.
        local: file of the token that the server makes for its own user; None for none.
        key: file with the key that signs tickets, made if it does not exist; None for one that ends with the process.

    Attributes:
        codes: by which web pages log in.
        reload_failed: the files have changed, and could not be read; the previous tokens stay.
    """

    def __init__(self, *, tokens: Path, local: Path | None, clock: Clock, key: Path | None = None) -> None:
        self._path = tokens
        self._local = local
        self._clock = clock
        self._key_file = key
        self._key = secrets.token_bytes(KEY_BYTES)
        self._tokens = Tokens()
        self._versions: _Versions = (None, None, None)
        self._followed: dict[asyncio.Event, Callable[[int], bool]] = {}
        # Of a client, as the server describes it.
        self.codes: LoginCodes[Any] = LoginCodes(
            owner=lambda client: (client.principal.label, client.token and client.token.id)
        )
        self._now_ms = 0
        self._looking = asyncio.Lock()
        self._looks = 0
        self.reload_failed = False

    def __len__(self) -> int:
        return len(self._tokens)

    def load(self) -> None:
        """Read the files, and make the local token if there is none.

        Raises:
            BadConfig: a file cannot be read, or others can use it.
        """
        while True:
            versions = self._seen()
            records = read_tokens(self._path)
            if self._local is not None:
                records = (*records, local_token(self._local, _make_local))
            if self._key_file is not None:
                self._key = ticket_key(self._key_file)
            if self._seen() == versions:
                break  # no file was made or replaced meanwhile
        self._versions = versions
        self._tokens = Tokens(records)
        self._warn()

    def find(self, text: str, address: str | None) -> TokenRecord | None:
        """Returns the record of a valid token."""
        return self._tokens.find(text, now_ms=self._time_ms(), address=address)

    def ticket(self, record: TokenRecord) -> tuple[str, int]:
        """Returns a ticket for the client of a token, and when it expires."""
        return self._signed(ticket_of_token(record, now_ms=self._time_ms()))

    def ticket_of_user(self, name: str) -> tuple[str, int]:
        """Returns a ticket for the user that the server runs as, and when it expires."""
        return self._signed(ticket_of_user(name, Role.ADMIN, now_ms=self._time_ms()))

    def _signed(self, ticket: Ticket) -> tuple[str, int]:
        return signed(ticket, self._key), ticket.expires_ms

    def find_ticket(self, text: str, address: str | None) -> tuple[Ticket, TokenRecord | None] | None:
        """Returns the content of a valid ticket, and the token that it was given for."""
        now_ms = self._time_ms()
        ticket = read_ticket(text, self._key, now_ms=now_ms)
        if ticket is None or ticket.kind == "unix":
            return None if ticket is None else (ticket, None)
        record = self._tokens.get(ticket.token, now_ms=now_ms, address=address)
        if record is None or generation_of(record) != ticket.generation:
            return None
        return ticket, record

    @contextlib.contextmanager
    def follow(
        self, record: TokenRecord | None, until_ms: int | None = None, holds: Callable[[], bool] = lambda: True
    ) -> Iterator[asyncio.Event]:
        """Yield an event that is set when a token is revoked, rotated or expires, or a ticket expires.

        Args:
            until_ms: when the ticket expires; None without one.
            holds: returns whether the client may still read for other reasons.
        """
        key = self._key

        def is_valid(now_ms: int) -> bool:
            if not holds():
                return False
            if until_ms is not None and (now_ms >= until_ms or self._key != key):
                return False
            return record is None or self._tokens.holds(record, now_ms=now_ms)

        ended = asyncio.Event()
        self._followed[ended] = is_valid
        try:
            yield ended
        finally:
            del self._followed[ended]

    async def run(self) -> None:
        """Read the files again when they change, until cancelled."""
        while True:
            await reloading.pause(POLL_S)
            await self.refresh()

    async def refresh(self) -> None:
        """Read the files again if they have changed, and end what used tokens that are no longer valid."""
        async with self._looking:
            self._looks += 1
            if await run_in_thread(self._seen) != self._versions:
                await self._reload()
            now_ms = self._time_ms()
            for ended, is_valid in self._followed.items():
                if not is_valid(now_ms):
                    ended.set()

    async def catch_up(self) -> bool:
        """Read the files now if they have changed: a credential that is not known may be newer. Returns whether they
        had.

        Of concurrent requests, one reads the files, and the others share its result.
        """
        looks, versions = self._looks, self._versions
        async with self._looking:
            is_shared = self._looks > looks  # it has begun after this call, and has ended
        if not is_shared:
            await self.refresh()
        return self._versions != versions

    async def _reload(self) -> None:
        try:
            await run_in_thread(self.load)
        except BadConfig as error:
            self._versions = await run_in_thread(self._seen)  # one line for each change
            self.reload_failed = True
            log.error("the tokens cannot be read again, so the previous ones stay valid: %s", error)
        else:
            self.reload_failed = False
            log.info("%d tokens have been read again", len(self._tokens))

    def _seen(self) -> _Versions:
        return reloading.version_of(self._path), reloading.version_of(self._local), reloading.version_of(self._key_file)

    def _time_ms(self) -> int:
        """Returns the wall clock, which does not go back here: nothing expired becomes valid again."""
        self._now_ms = max(self._now_ms, self._clock.now_ms())
        return self._now_ms

    def _warn(self) -> None:
        now_ms = self._time_ms()
        for record in self._tokens.records:
            if record.expires_ms is not None and now_ms <= record.expires_ms < now_ms + WARN_MS:
                log.warning(
                    "the token %s (%s) expires at %s: see `kactl token rotate`",
                    record.name, record.id, moment(record.expires_ms),
                )  # fmt: skip


def _make_local() -> str:
    return new_token(
        LOCAL_NAME, Role.ADMIN, random=secrets.token_bytes(ID_BYTES + SECRET_BYTES), now_ms=0, expires_ms=None
    ).text
