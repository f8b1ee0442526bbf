"""Synchronous client of the admin API: one connection per request.

It uses `http.client` instead of the server's HTTP library: it is part of Python, and its import takes a tenth of the
time.
"""

import contextlib
import functools
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

import click
import msgspec

from kactl.admin.schema import LIMIT_MAX, Answer, PartitionInfo, PartitionPage, Problem, Question, TopicInfo, TopicPage

from . import context_file, credentials, output
from .exits import Exit, Failure, refused

if TYPE_CHECKING:
    import socket
    import ssl
    from http.client import HTTPConnection

# A standby redirects writes to the controller. More redirects mean that standbys redirect to each other.
REDIRECTS_MAX: Final = 3
UNAUTHORIZED: Final = 401
# Invalid JSON or another type, invalid UTF-8, and nesting beyond the limit of the interpreter.
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

Query = Mapping[str, str | int | bool | None]
_Answer = TypeVar("_Answer", bound=Answer)


class Api:
    """The admin API of one server.

    Args:
        server: "http://host:port".
        timeout_s: for connecting, and for each response.
        verbose: print each request, its status and its duration to stderr.
        on_standby: called with a remark if a standby responded from its copy of the cluster.
        token_file: the file with the token to present; None to look for one.
        ca_file: the authority of the server's certificate; None to look for it, then for those of the system.
        context: name of the context that the server was taken from; empty if it was not.
    """

    def __init__(
        self,
        server: str,
        *,
        timeout_s: float,
        verbose: bool = False,
        on_standby: Callable[[str], None] | None = None,
        token_file: str | None = None,
        ca_file: str | None = None,
        context: str = "",
    ) -> None:
        self._ca_file = ca_file
        self._context = context
        self._token_file = token_file
        self.server = server
        self.timeout_s = timeout_s
        self.verbose = verbose
        self.on_standby = on_standby

    def get(self, path: str, kind: type[_Answer], query: Query | None = None) -> _Answer:
        """Send a GET request. Returns the decoded response.

        Raises:
            Failure: the server cannot be reached, or rejected the request; `Exit` lists the codes.
        """
        return self._ask("GET", path + _query(query), None, kind)

    def post(self, path: str, question: Question, kind: type[_Answer]) -> _Answer:
        """Send a POST request. Returns and raises like `get`."""
        return self._ask("POST", path, msgspec.json.encode(question), kind)

    def patch(self, path: str, question: Question, kind: type[_Answer]) -> _Answer:
        """Send a PATCH request. Returns and raises like `get`."""
        return self._ask("PATCH", path, msgspec.json.encode(question), kind)

    def delete(self, path: str, kind: type[_Answer], query: Query | None = None) -> _Answer:
        """Send a DELETE request. Returns and raises like `get`."""
        return self._ask("DELETE", path + _query(query), None, kind)

    def partitions(self, query: Query | None = None, *, limit: int | None = None) -> tuple[list[PartitionInfo], int]:
        """Read all pages. Returns at most `limit` partitions, and the number of partitions that match."""
        items: list[PartitionInfo] = []
        cursor: str | None = None
        while True:
            room = LIMIT_MAX if limit is None else min(LIMIT_MAX, limit - len(items))
            page = self.get("/v1/partitions", PartitionPage, {**(query or {}), "limit": room, "cursor": cursor})
            items += page.items
            cursor = page.next_cursor
            if cursor is None or len(items) == limit:
                return items, page.matched

    def topics(self) -> list[TopicInfo]:
        """Read all pages. Returns all topics."""
        page = self.get("/v1/topics", TopicPage, {"limit": LIMIT_MAX})
        items = [*page.items]
        while page.next_cursor is not None:
            page = self.get("/v1/topics", TopicPage, {"limit": LIMIT_MAX, "cursor": page.next_cursor})
            items += page.items
        return items

    @functools.cached_property
    def credential(self) -> credentials.Credential:
        return credentials.find(self.server, self._token_file, self._ca_file, context=self._context)

    def headers(self, server: str) -> dict[str, str]:
        """Returns the headers that identify this client; a token goes to the servers that it is for, only."""
        own = {"X-Kactl-Request": "1"}
        if self.credential.token and credentials.origin(server) in self.credential.origins:
            own["Authorization"] = f"Bearer {self.credential.token}"
        return own

    def refusal(self, server: str, status: int, content: bytes) -> Failure:
        """Returns the failure for a response with an error status."""
        return refusal(server, status, content, presented="Authorization" in self.headers(server))

    def connected(self, server: str) -> contextlib.AbstractContextManager["HTTPConnection"]:
        """Open a connection to a server; see the function `connected`."""
        found = self.credential
        own = (found.cert, found.key) if credentials.origin(server) in found.origins else ("", "")
        return connected(server, self.timeout_s, found.socket if server == self.server else "", found.ca, own)

    def _ask(self, method: str, path: str, body: bytes | None, kind: type[_Answer]) -> _Answer:
        server = self.server
        for _ in range(REDIRECTS_MAX):
            started = time.perf_counter()
            with self.connected(server) as connection:
                headers = {"Accept": "application/json"} | ({"Content-Type": "application/json"} if body else {})
                connection.request(method, path, body, headers | self.headers(server))
                response = connection.getresponse()
                content = response.read()
            if self.verbose:
                took_ms = (time.perf_counter() - started) * 1000
                output.echo(f"{method} {server}{path} -> {response.status} in {took_ms:.0f} ms", err=True)
            if response.status not in (307, 308):
                if response.status >= 400:
                    raise self.refusal(server, response.status, content)
                age = response.getheader("Kactl-Standby-Age-Ms")
                if age is not None and self.on_standby is not None:
                    self.on_standby(f"{server} is a standby: it shows its copy of the cluster, up to {age} ms old")
                    self.on_standby = None  # once per command
                return _decoded(server, content, kind)
            target = urllib.parse.urlsplit(urllib.parse.urljoin(server, response.headers.get("Location", "")))
            server = f"{target.scheme}://{target.netloc}"
            path = urllib.parse.urlunsplit(target._replace(scheme="", netloc=""))
        raise Failure(f"{self.server}: redirected more than {REDIRECTS_MAX} times; retry when there is a controller")


@contextlib.contextmanager
def connected(
    server: str, timeout_s: float, unix_socket: str = "", ca: str = "", own: tuple[str, str] = ("", "")
) -> Iterator["HTTPConnection"]:
    """Open a connection to a server, and close it at the end of the block.

    Args:
        unix_socket: path of a socket that is used if a server listens there.
        ca: file with the authority of the server's certificate; empty for those of the system.
        own: files of the client's certificate and key; empty for none.

    Raises:
        Failure: UNREACHABLE if the connection fails in the block; USAGE if the URL is invalid.
    """
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    url = _parsed(server)
    assert url.hostname is not None
    connection: HTTPConnection
    if url.scheme == "https":
        connection = HTTPSConnection(url.hostname, url.port, timeout=timeout_s, context=_verifying(ca, *own))
    else:
        connection = HTTPConnection(url.hostname, url.port, timeout=timeout_s)
    try:
        if unix_socket:
            connection.sock = _connected_to(unix_socket, timeout_s)
        yield connection
    except TimeoutError as error:
        raise Failure(
            f"{server} did not respond within {timeout_s:g} s: check whether it is busy, or raise --timeout",
            Exit.UNREACHABLE,
        ) from error
    except (OSError, HTTPException) as error:
        if url.scheme == "https" and isinstance(error, OSError) and (rejected := _rejected(error)):
            raise Failure(
                f"{server}: {rejected}; name the file of its authority with --ca-file", Exit.UNREACHABLE
            ) from error
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise Failure(
            f"{server} cannot be reached ({reason}): start a server with `kactl up`, or select another with --server",
            Exit.UNREACHABLE,
        ) from error
    finally:
        connection.close()


def _verifying(ca: str, cert: str = "", key: str = "") -> "ssl.SSLContext":
    """Returns settings that verify the server's certificate and its name, and present the client's own."""
    import ssl

    from kactl.model.errors import BadConfig
    from kactl.runtime.private_files import check_trusted
    from kactl.security.tls.certificate_file import load_pair, unusable_authorities

    try:
        check_trusted(ca, "--ca-file")
        context = ssl.create_default_context(cafile=ca or None)
    except BadConfig as error:
        raise Failure(str(error), Exit.USAGE) from None
    except OSError as error:
        raise Failure(str(unusable_authorities(error, ca, "--ca-file")), Exit.USAGE) from None
    if cert:
        try:
            load_pair(context, cert, key, "")
        except BadConfig as error:
            raise Failure(f"{context_file.NAME}: {error.reason}", Exit.USAGE) from None
    return context


def _rejected(error: OSError) -> str:
    from kactl.security.tls.outgoing import rejected_certificate

    return rejected_certificate(error)


def _connected_to(path: str, timeout_s: float) -> "socket.socket | None":
    """Returns a connected Unix socket; None if no server listens there, so that the network is used instead.

    Raises:
        OSError: the server does not accept the connection in time.
    """
    import socket

    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        connection.connect(path)
    except (ConnectionRefusedError, FileNotFoundError, PermissionError):
        connection.close()
        return None
    except BaseException:
        connection.close()
        raise
    return connection


def refusal(server: str, status: int, content: bytes, *, presented: bool = False) -> Failure:
    """Returns the failure for a response with an error status.

    Args:
        presented: the request had a token.
    """
    if status == UNAUTHORIZED and presented:
        return Failure(
            f"401: {server} rejects the token: it is unknown, expired, revoked, or not valid for this address; see "
            "`kactl token list`, and name the file of another one with --token-file"
        )
    if status == UNAUTHORIZED:
        return Failure(f"401: {server} requires a token: give --token-file, or run as the user who started kactl")
    try:
        return refused(msgspec.json.decode(content, type=Problem))
    except UNREADABLE:
        return Failure(
            f"{server} responded with status {status} and without a problem document: is it a kactl server?",
            Exit.UNREACHABLE,
        )


def _decoded(server: str, content: bytes, kind: type[_Answer]) -> _Answer:
    try:
        return msgspec.json.decode(content, type=kind)
    except UNREADABLE as error:
        raise Failure(
            f"the response of {server} is not a valid {kind.__name__} ({error}): is it a kactl server of this version?",
            Exit.UNREACHABLE,
        ) from None


def checked_url(server: str) -> str:
    """Returns the URL of a server.

    Raises:
        Failure: USAGE; it is not a URL.
    """
    _parsed(server)
    return server


def _parsed(server: str) -> urllib.parse.SplitResult:
    try:
        url = urllib.parse.urlsplit(server)
        is_valid = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        (url.hostname or "").encode("idna")  # as the resolver does
    except ValueError:  # such as a port that is not a number, or an empty label of the host
        is_valid = False
    if is_valid:
        return url
    raise Failure(f"--server: {server!r} is not a URL such as http://127.0.0.1:8080", Exit.USAGE)


def _query(query: Query | None) -> str:
    parameters = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in (query or {}).items()
        if value is not None
    }
    return f"?{urllib.parse.urlencode(parameters)}" if parameters else ""


def quoted(part: str | int) -> str:
    """Returns one segment of a path, percent-encoded.

    Raises:
        Failure: USAGE; it is empty, and the path would be that of another resource.
    """
    if part == "":
        raise Failure(
            "an argument is empty: write the name of a topic, of a partition as orders-0, or an id", Exit.USAGE
        )
    return urllib.parse.quote(str(part), safe="")


def require_terminal() -> None:
    """Check that a confirmation can be requested.

    Raises:
        Failure: PRECONDITION; there is no terminal.
    """
    if not is_tty():
        raise Failure(
            "not confirmed: there is no terminal to confirm on; preview with --dry-run, then repeat with --yes",
            Exit.PRECONDITION,
        )


def confirm(question: str) -> None:
    """Ask for confirmation of a change that cannot be undone.

    Raises:
        Failure: PRECONDITION; not confirmed, or there is no terminal.
    """
    require_terminal()
    if not click.confirm(question, err=True):
        raise Failure("not confirmed: nothing was changed", Exit.PRECONDITION)


def is_tty() -> bool:
    """Returns whether stdin and stderr are terminals."""
    return sys.stdin.isatty() and sys.stderr.isatty()
