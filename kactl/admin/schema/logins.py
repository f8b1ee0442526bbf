"""Logins of web pages."""

from .common import Answer


class LoginCode(Answer, frozen=True):
    """A code, with which one page can log in within a minute: as `Bearer` credential of `POST /v1/login`."""

    code: str


class Login(Answer, frozen=True):
    """What a page presents as `Bearer` credential from now on, in place of a token.

    Attributes:
        expires_ms: wall clock, ms since 1970. It ends earlier when the token is revoked, rotated or changed.
    """

    ticket: str
    principal: str
    role: str
    expires_ms: int
