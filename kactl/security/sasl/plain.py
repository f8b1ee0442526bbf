"""PLAIN, the client's side (RFC 4616). The password travels as it is: only for encrypted connections."""

from .mechanism import SaslError


class Plain:
    """One login."""

    name = "PLAIN"

    def __init__(self, username: str, password: str) -> None:
        self._username = username
        self._password = password
        self.is_complete = False

    def first(self) -> bytes:
        # The server proves nothing: its certificate has to.
        self.is_complete = True
        return f"\0{self._username}\0{self._password}".encode()

    def respond(self, challenge: bytes) -> bytes:
        if challenge:
            raise SaslError("the server sent a message after the end of the login")
        return b""
