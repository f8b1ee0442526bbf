"""Passwords of PLAIN: checks beside the event loop, and their rate."""

import asyncio
import threading
from collections.abc import Collection
from typing import Any

import pytest

from kactl.model.errors import ErrorCode
from kactl.security.sasl import ScramVerifier, Shape, verifier
from kactl.security.sasl.scram import KAFKA_SHAPE, Name
from kactl.transports.kafka.listener import authentication
from kactl.transports.kafka.listener.authentication import (
    LOGIN_TIMEOUT_S,
    PLAIN_BURST,
    PLAIN_RATE,
    Authentication,
    Login,
    Pace,
)

pytestmark = pytest.mark.anyio
LOGINS = 1000


class Users:
    """One user, whose password costs a few milliseconds."""

    def __init__(self) -> None:
        self.known = verifier("SCRAM-SHA-512", "right", salt=b"salt", iterations=4096)

    async def scram_verifier(self, mechanism: Name, username: str) -> ScramVerifier | None:
        return self.known if (mechanism, username) == ("SCRAM-SHA-512", "alice") else None

    def shapes(self, mechanism: Name) -> Collection[Shape]:
        return (KAFKA_SHAPE,)


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


def test_address_has_five_checks_a_second() -> None:
    pace = Pace()

    waits = [pace.wait_s("10.0.0.1", 100.0) for _ in range(PLAIN_BURST + 2)]

    assert waits == pytest.approx([0.0] * PLAIN_BURST + [1 / PLAIN_RATE, 2 / PLAIN_RATE])
    assert pace.wait_s("10.0.0.2", 100.0) == 0.0
    assert pace.wait_s("10.0.0.1", 200.0) == 0.0


def test_check_that_would_wait_too_long_takes_no_turn() -> None:
    pace = Pace()
    while pace.wait_s("2001:db8::1", 0.0) is not None:
        pass

    # One network of IPv6 counts as one address.
    assert pace.wait_s("2001:db8::2", 0.0) is None
    assert pace.wait_s("2001:db8::1", 1.0) == pytest.approx(LOGIN_TIMEOUT_S, abs=2 / PLAIN_RATE + 1)
    assert pace.wait_s("2001:db8::1", 1000.0) == 0.0


async def test_login_beyond_the_rate_fails_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    own = authenticating()
    monkeypatch.setattr(own, "_pace", type("Busy", (), {"wait_s": lambda *_: None})())
    monkeypatch.setattr(authentication, "verifier", lambda *_, **__: pytest.fail("a password was checked"))

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
