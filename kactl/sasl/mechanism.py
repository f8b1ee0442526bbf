"""Interface of the mechanisms."""

from typing import Protocol


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
