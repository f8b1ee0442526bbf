"""Interface of the mechanisms."""

from collections.abc import Callable
from typing import Final, Protocol

# More messages than any mechanism needs; a hostile server would otherwise keep a login busy.
ROUNDS_MAX: Final = 8


class SaslError(Exception):
    """The other side sent a message that the mechanism does not permit, or failed to prove that it knows the secret."""


class ClientMechanism(Protocol):
    """The client's side of one login.

    Attributes:
        name: the mechanism's registered name.
        is_complete: whether the server has proved itself, or the mechanism needs no such proof. A server's success
            before that is to be rejected.
    """

    name: str
    is_complete: bool

    def first(self) -> bytes:
        """Returns the first message to the server; empty if the server begins."""

    def respond(self, challenge: bytes) -> bytes:
        """Returns the response to a message of the server; empty if none is due.

        Raises:
            SaslError: the message is malformed, or is not from a server that knows the secret.
        """


class SaslMechanism(Protocol):
    """A way to log in that is not a part of kactl, such as GSSAPI with Kerberos; an object of the host program.

    Attributes:
        name: the mechanism's registered name.
        identity: what servers know this program by; for messages.
    """

    name: str
    identity: str

    def login(self, host: str) -> ClientMechanism:
        """Returns the client's side of a new login to a server.

        Its methods run in a thread and may block, for instance to fetch a ticket.

        Args:
            host: as in the configuration; a part of the server's name in some mechanisms.
        """


class Conversation:
    """The order of the messages of one login, for any mechanism."""

    def __init__(self, login: ClientMechanism) -> None:
        self._login = login
        self._rounds = 0

    def begin(self) -> bytes:
        """Returns the first message to the server.

        Raises:
            SaslError: the mechanism has no credentials.
        """
        return self._called(self._login.first)

    def next(self, challenge: bytes) -> bytes | None:
        """Returns the next message to the server; None when the login is complete.

        Raises:
            SaslError: the mechanism does not accept the server's message, or the server does not finish.
        """
        if self._login.is_complete:
            if challenge:
                raise SaslError("the server sent a message after the end of the login")
            return None
        self._rounds += 1
        response = self._called(self._login.respond, challenge)
        if self._login.is_complete and not response:
            return None
        if self._rounds >= ROUNDS_MAX:
            raise SaslError(f"the server did not finish the login in {ROUNDS_MAX} messages")
        return response

    @staticmethod
    def _called(method: Callable[..., bytes], *arguments: bytes) -> bytes:
        """Returns the result of a mechanism. A failure of one that is not a part of kactl ends the login alone."""
        try:
            return method(*arguments)
        except SaslError:
            raise
        except Exception as error:
            raise SaslError(f"the mechanism has failed: {type(error).__name__}: {error}") from error
