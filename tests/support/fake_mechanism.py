"""A mechanism of SASL that is no part of kactl, with several rounds, as GSSAPI has them: both sides of its logins."""

from kactl.security.sasl import SaslError

ROUNDS = 4


class FakeMechanism:
    """Proves nothing: each side counts the messages of the other one.

    Args:
        ends_with_message: the client's last message needs no response, as in GSSAPI.
        fails: the client has no credentials.
    """

    name = "FAKE"
    identity = "kactl@EXAMPLE"

    def __init__(self, *, ends_with_message: bool = False, fails: bool = False) -> None:
        self.ends_with_message = ends_with_message
        self.fails = fails
        self.hosts: list[str] = []

    def login(self, host: str) -> "FakeLogin":
        self.hosts.append(host)
        return FakeLogin(self)


class FakeLogin:
    """The client's side."""

    name = "FAKE"

    def __init__(self, mechanism: FakeMechanism) -> None:
        self._mechanism = mechanism
        self._round = 0
        self.is_complete = False

    def first(self) -> bytes:
        if self._mechanism.fails:
            raise RuntimeError("no ticket")
        return b"client 0"

    def respond(self, challenge: bytes) -> bytes:
        if challenge != f"server {self._round}".encode():
            raise SaslError("the server's message is out of order")
        self._round += 1
        last = self._round == ROUNDS - (1 if self._mechanism.ends_with_message else 0)
        self.is_complete = last
        return b"" if last and not self._mechanism.ends_with_message else f"client {self._round}".encode()


class FakeServer:
    """The server's side.

    Args:
        ends_with_message: as of the client.
    """

    def __init__(self, *, ends_with_message: bool = False) -> None:
        self._ends_with_message = ends_with_message
        self.rounds = 0

    @property
    def is_complete(self) -> bool:
        return self.rounds == ROUNDS

    def reply(self, message: bytes) -> bytes:
        assert message == f"client {self.rounds}".encode()
        self.rounds += 1
        last = self.is_complete and self._ends_with_message
        return b"" if last else f"server {self.rounds - 1}".encode()
