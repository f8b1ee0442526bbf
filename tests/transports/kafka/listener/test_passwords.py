"""Passwords of PLAIN: checks beside the event loop, and their rate."""

import asyncio
import contextlib
import threading
from collections.abc import Collection
from typing import Any

import pytest

from kactl.model.errors import ErrorCode
from kactl.runtime.budget import RATES, Rate, Unit
from kactl.security.sasl import SaslError, ScramVerifier, verifier
from kactl.security.sasl.scram import ITERATIONS_MIN, Name
from kactl.transports.kafka.listener import authentication
from kactl.transports.kafka.listener.authentication import (
    LOGIN_TIMEOUT_S,
    PLAIN_RATE,
    Authentication,
    Login,
)

pytestmark = pytest.mark.anyio
LOGINS = 1000
PLAIN_BURST = int(RATES[Unit.PASSWORDS].burst)


class Users:
    """One user, whose password costs a few milliseconds."""

    def __init__(self) -> None:
        self.known = verifier("SCRAM-SHA-512", "right", salt=b"salt", iterations=4096)

    async def scram_verifier(self, mechanism: Name, username: str) -> ScramVerifier | None:
        return self.known if (mechanism, username) == ("SCRAM-SHA-512", "alice") else None

    def iterations(self, mechanism: Name) -> Collection[int]:
        return (ITERATIONS_MIN,)


def authenticating() -> Authentication:
    return Authentication("SASL_SSL", mechanisms=["PLAIN"], users=Users())


async def log_in(login: Login, username: str, password: str) -> dict[str, Any]:
    handshake, _ = login.on_handshake({"mechanism": "PLAIN"})
    assert handshake["error_code"] is ErrorCode.NONE
    response, _ = await login.on_authenticate({"auth_bytes": f"\0{username}\0{password}".encode()})
    return response


@pytest.mark.slow
async def test_flood_of_a_thousand_logins_is_checked_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong passwords from 200 addresses, and one right one in between."""
    at_once, most, elsewhere = 0, 0, True
    lock, loop_thread = threading.Lock(), threading.get_ident()

    def checked(*arguments: Any, **more: Any) -> ScramVerifier:
        nonlocal at_once, most, elsewhere
        with lock:
            at_once += 1
            most = max(most, at_once)
            elsewhere &= threading.get_ident() != loop_thread
        try:
            return verifier(*arguments, **more)
        finally:
            with lock:
                at_once -= 1

    monkeypatch.setattr(authentication, "verifier", checked)
    own = authenticating()

    async def flood(first: int) -> list[ErrorCode]:
        """Log in five times from one address."""
        logins = [own.login(f"10.0.0.{first}") for _ in range(LOGINS // 200)]
        return [(await log_in(login, "alice", "wrong"))["error_code"] for login in logins]

    floods = [asyncio.create_task(flood(number)) for number in range(200)]
    well_behaved = await log_in(own.login("10.1.0.1"), "alice", "right")
    refused = {code for codes in await asyncio.gather(*floods) for code in codes}

    assert well_behaved["error_code"] is ErrorCode.NONE
    assert refused == {ErrorCode.SASL_AUTHENTICATION_FAILED}
    assert (most, elsewhere) == (4, True)


class Waits:
    """Waits of logins by a clock that stands still, in s."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        self.waits: list[float] = []
        monkeypatch.setattr(authentication, "_now_s", lambda: self.now_s)
        monkeypatch.setattr(authentication.asyncio, "sleep", self.sleep)  # type: ignore[attr-defined]
        self.authentication = authenticating()

    async def sleep(self, delay_s: float) -> None:
        self.waits.append(delay_s)

    async def check(self, address: str) -> float:
        """Returns the wait of a check of a password. Raises SaslError."""
        await self.authentication.matching("alice", "right", address)
        return self.waits[-1]


async def test_address_has_five_checks_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = Waits(monkeypatch)

    own = [await waits.check("10.0.0.1") for _ in range(PLAIN_BURST + 2)]

    assert own == pytest.approx([0.0] * PLAIN_BURST + [1 / PLAIN_RATE, 2 / PLAIN_RATE])
    assert await waits.check("10.0.0.2") == 0.0
    waits.now_s = 200.0
    assert await waits.check("10.0.0.1") == 0.0


async def test_check_that_would_wait_too_long_takes_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = Waits(monkeypatch)
    monkeypatch.setattr(authentication, "verifier", lambda *_, **__: None)
    with contextlib.suppress(SaslError):
        while True:
            await waits.check("2001:db8::1")

    # One network of IPv6 counts as one address.
    with pytest.raises(SaslError, match="too many logins"):
        await waits.check("2001:db8::2")
    assert waits.waits[-1] == pytest.approx(LOGIN_TIMEOUT_S, abs=1 / PLAIN_RATE)
    waits.now_s += 1.0
    assert await waits.check("2001:db8::1") == pytest.approx(LOGIN_TIMEOUT_S, abs=2 / PLAIN_RATE + 1)


async def test_login_beyond_the_rate_fails_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RATES, Unit.PASSWORDS, Rate(1e-9, 0))
    own = authenticating()
    monkeypatch.setattr(authentication, "verifier", lambda *_, **__: pytest.fail("a password was checked"))
    own._budget.settle("10.0.0.1", Unit.PASSWORDS, 1)

    assert (await log_in(own.login("10.0.0.1"), "alice", "right"))["error_code"] is ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_unknown_user_costs_as_much_as_a_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    costs: list[list[int]] = []

    def counted(name: Name, password: str, *, salt: bytes, iterations: int) -> ScramVerifier:
        costs[-1].append(iterations)
        return verifier(name, password, salt=salt, iterations=iterations)

    monkeypatch.setattr(authentication, "verifier", counted)
    own = authenticating()
    for username in ("alice", "nobody"):
        costs.append([])
        response = await log_in(own.login("10.0.0.1"), username, "wrong")
        assert response["error_code"] is ErrorCode.SASL_AUTHENTICATION_FAILED

    assert costs == [[4096, 4096]] * 2
