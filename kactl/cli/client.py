"""One request to a running server, over a plain connection of its own.

`http.client` in place of the server's own HTTP library: it is there already and costs a tenth of the start-up time.
"""

import contextlib
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

import click
import msgspec

from kactl.admin.schema import LIMIT_MAX, Answer, PartitionInfo, PartitionPage, Problem, Question, TopicInfo, TopicPage

from .exits import Exit, Failure, refused

if TYPE_CHECKING:
    from http.client import HTTPConnection

# A write that a standby sends on to the controller; more would be standbys that point at each other.
REDIRECTS_MAX: Final = 3

Query = Mapping[str, str | int | bool | None]
_Answer = TypeVar("_Answer", bound=Answer)


class Api:
    """The admin API of one server.

    Args:
        server: "http://host:port".
        timeout_s: for connecting, and for each answer.
        verbose: say on stderr what is asked, and how long the answer took.
        on_standby: receives a remark if an answer comes from the copy of an instance that stands by.
    """

    def __init__(
        self, server: str, *, timeout_s: float, verbose: bool = False, on_standby: Callable[[str], None] | None = None
    ) -> None:
        self.server = server
        self.timeout_s = timeout_s
        self.verbose = verbose
        self.on_standby = on_standby

    def get(self, path: str, kind: type[_Answer], query: Query | None = None) -> _Answer:
        """The answer to a GET.

        Raises:
            Failure: see `Exit` for the codes.
        """
        return self._ask("GET", path + _query(query), None, kind)

    def post(self, path: str, question: Question, kind: type[_Answer]) -> _Answer:
        """The answer to a POST. Raises like `get`."""
        return self._ask("POST", path, msgspec.json.encode(question), kind)

    def patch(self, path: str, question: Question, kind: type[_Answer]) -> _Answer:
        """The answer to a PATCH. Raises like `get`."""
        return self._ask("PATCH", path, msgspec.json.encode(question), kind)

    def delete(self, path: str, kind: type[_Answer], query: Query | None = None) -> _Answer:
        """The answer to a DELETE. Raises like `get`."""
        return self._ask("DELETE", path + _query(query), None, kind)

    def partitions(self, query: Query | None = None, *, limit: int | None = None) -> tuple[list[PartitionInfo], int]:
        """Partitions over as many pages as it takes, `limit` at the most, and how many there are in all."""
        found: list[PartitionInfo] = []
        cursor: str | None = None
        while True:
            room = LIMIT_MAX if limit is None else min(LIMIT_MAX, limit - len(found))
            page = self.get("/v1/partitions", PartitionPage, {**(query or {}), "limit": room, "cursor": cursor})
            found += page.items
            cursor = page.next_cursor
            if cursor is None or len(found) == limit:
                return found, page.matched

    def topics(self) -> list[TopicInfo]:
        """All topics, over as many pages as it takes."""
        page = self.get("/v1/topics", TopicPage, {"limit": LIMIT_MAX})
        found = [*page.items]
        while page.next_cursor is not None:
            page = self.get("/v1/topics", TopicPage, {"limit": LIMIT_MAX, "cursor": page.next_cursor})
            found += page.items
        return found

    def _ask(self, method: str, path: str, body: bytes | None, kind: type[_Answer]) -> _Answer:
        server = self.server
        for _ in range(REDIRECTS_MAX):
            began = time.perf_counter()
            with connected(server, self.timeout_s) as connection:
                headers = {"Accept": "application/json"} | ({"Content-Type": "application/json"} if body else {})
                connection.request(method, path, body, headers)
                response = connection.getresponse()
                content = response.read()
            if self.verbose:
                took_ms = (time.perf_counter() - began) * 1000
                click.echo(f"{method} {server}{path} -> {response.status} in {took_ms:.0f} ms", err=True)
            if response.status not in (307, 308):
                if response.status >= 400:
                    raise refusal(server, response.status, content)
                age = response.getheader("Kactl-Standby-Age-Ms")
                if age is not None and self.on_standby is not None:
                    self.on_standby(f"{server} stands by: this is its copy of the cluster, up to {age} ms old")
                    self.on_standby = None  # said already
                return _decoded(server, content, kind)
            there = urllib.parse.urlsplit(urllib.parse.urljoin(server, response.headers.get("Location", "")))
            server = f"{there.scheme}://{there.netloc}"
            path = urllib.parse.urlunsplit(there._replace(scheme="", netloc=""))
        raise Failure(f"{self.server}: sent from server to server without an end; try again when there is a controller")


@contextlib.contextmanager
def connected(server: str, timeout_s: float) -> Iterator["HTTPConnection"]:
    """A connection to a server, closed in the end; what goes wrong with it becomes a Failure.

    Raises:
        Failure: UNREACHABLE, or USAGE for a URL that is none.
    """
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    where = _parsed(server)
    kind = HTTPSConnection if where.scheme == "https" else HTTPConnection
    assert where.hostname is not None
    connection = kind(where.hostname, where.port, timeout=timeout_s)
    try:
        yield connection
    except TimeoutError as error:
        raise Failure(
            f"{server} did not answer within {timeout_s:g} s: look whether it is busy, or allow more with --timeout",
            Exit.UNREACHABLE,
        ) from error
    except (OSError, HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise Failure(
            f"{server} cannot be reached ({reason}): start a server with `kactl up`, or name another one with --server",
            Exit.UNREACHABLE,
        ) from error
    finally:
        connection.close()


def refusal(server: str, status: int, content: bytes) -> Failure:
    """The failure that an answer with an error status stands for."""
    try:
        return refused(msgspec.json.decode(content, type=Problem))
    except msgspec.MsgspecError:
        return Failure(
            f"{server} answered with status {status} and no problem document: is it a kactl server?", Exit.UNREACHABLE
        )


def _decoded(server: str, content: bytes, kind: type[_Answer]) -> _Answer:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise Failure(
            f"{server} gave an answer that is no {kind.__name__} ({error}): is it a kactl server of this version?",
            Exit.UNREACHABLE,
        ) from None


def _parsed(server: str) -> urllib.parse.SplitResult:
    try:
        where = urllib.parse.urlsplit(server)
        is_one = where.scheme in ("http", "https") and bool(where.hostname) and where.port != 0
    except ValueError:  # as for a port that is no number
        is_one = False
    if is_one:
        return where
    raise Failure(f"--server: {server!r} is not a URL such as http://127.0.0.1:8080", Exit.USAGE)


def _query(query: Query | None) -> str:
    given = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in (query or {}).items()
        if value is not None
    }
    return f"?{urllib.parse.urlencode(given)}" if given else ""


def quoted(part: str | int) -> str:
    """One part of a path."""
    return urllib.parse.quote(str(part), safe="")


def require_terminal() -> None:
    """See that there is somebody to be asked.

    Raises:
        Failure: PRECONDITION; there is not.
    """
    if not is_tty():
        raise Failure(
            "not confirmed: there is no terminal to ask on; look with --dry-run, then say --yes", Exit.PRECONDITION
        )


def confirm(question: str) -> None:
    """Ask before something is done that cannot be undone.

    Raises:
        Failure: PRECONDITION; the answer was no, or there is nobody to be asked.
    """
    require_terminal()
    if not click.confirm(question, err=True):
        raise Failure("not confirmed: nothing was changed", Exit.PRECONDITION)


def is_tty() -> bool:
    """Whether a person sits at both ends."""
    return sys.stdin.isatty() and sys.stderr.isatty()
