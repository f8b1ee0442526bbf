"""One server: the connections of its clients, its copy of the tree, and their watches.

    client ──request──▶ read:  answered from the copy, after the client's earlier writes
                        write: sent to the leader; answered when its transaction is applied here

Requests of one connection are answered in their order, events in the order of the transactions, both on one stream.

Source: ZooKeeperServer, CommitProcessor, FinalRequestProcessor.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kactl.testing.nodes import Node as SimNode

from . import access, reads, wire
from .access import Identity
from .codes import PING_XID, WRITES, Code, Event, Op, Perm, Refused
from .operations import Operation
from .tree import (
    AclSet,
    Checked,
    Created,
    DataSet,
    Deleted,
    Failed,
    RegisterBrokerAndReelect,
    Result,
    SessionClosed,
    Tree,
    Txn,
)
from .watches import Watches
from .wire import Acl, Greeting, Request

if TYPE_CHECKING:
    from .ensemble import Ensemble

# Limit of a request's frame; a longer one ends the connection. Source: jute.maxbuffer.
REQUEST_BYTES_MAX: Final = 0xFFFFF

_KNOWN: Final = frozenset(Op)


class Origin(NamedTuple):
    """Where a write came from, for the answer. `xid` is that of the request."""

    end: "ServerEnd"
    xid: int


class Proposal(NamedTuple):
    """A write on its way to the leader.

    Attributes:
        request: None if it could not be decoded.
        opens: the session that it opens, instead of a request: its number, its timeout and its password.
    """

    server: int
    session: int
    request: Request | None
    identities: tuple[Identity, ...]
    origin: Origin
    opens: RegisterBrokerAndReelect | None = None


class Fault(NamedTuple):
    """A connection that breaks at one request.

    Attributes:
        done: whether the request is executed, and its answer lost; otherwise it is not executed.
        matches: chooses the request; called first.
    """

    done: Callable[[], bool]
    matches: Callable[[Request], bool]


class _Pending:
    """A request with a response that is due."""

    __slots__ = ("request", "waits", "xid")

    def __init__(self, xid: int, request: Request | None, *, waits: bool) -> None:
        self.xid = xid
        self.request = request
        self.waits = waits  # for the leader


class ServerEnd:
    """Server's end of one connection.

    Args:
        send: sends a frame to the client.
        close: closes the connection. With True, frames sent in the same turn are delivered first.
        identities: of the client, by its address.

    Attributes:
        client: name of the client's node.
        fault: breaks the connection at a request, if set.
        operations: methods of the store that sent requests, by the numbers of the requests; for the history.
        lost_operations: those whose outcome the client does not learn.
    """

    def __init__(
        self,
        server: "Server",
        *,
        client: str,
        send: Callable[[bytes], None],
        close: Callable[[bool], None],
        identities: Sequence[Identity],
    ) -> None:
        self._server = server
        self._send = send
        self._close = close
        self.client = client
        self.identities = list(identities)
        self.session = 0
        self.is_greeted = False
        self.is_closed = False
        self.pending: deque[_Pending] = deque()
        self.fault: Fault | None = None
        self.operations: dict[int, Operation] = {}
        self.lost_operations: dict[int, Operation] = {}
        self._loses_xid: int | None = None

    def operation(self, xid: int) -> Operation | None:
        """Returns the method of the store that sent a request; None if it was sent past the store."""
        return self.operations.get(xid) or self.lost_operations.get(xid)

    def received(self, frame: bytes) -> None:
        """Handle a frame of the client, in the server's node."""
        if not self.is_closed:
            self._server.received(self, frame)

    def closed_by_client(self) -> None:
        """Handle the end of the connection; the session goes on."""
        self._server.forget(self)

    def fired(self, kind: Event, path: str, acl: Sequence[Acl]) -> None:
        if access.allows(acl, Perm.READ, self.identities):
            self.send(wire.event(kind, path))

    def send(self, frame: bytes) -> None:
        if not self.is_closed:
            self._send(frame)

    def answer(self, xid: int, code: Code, body: bytes = b"", *, zxid: int | None = None) -> None:
        """Send a response; by default with the last transaction that the server has applied."""
        if xid == self._loses_xid:
            self.close()
        last = self._server.tree.zxid if zxid is None else zxid
        self.send(wire.reply(xid, last, code, b"" if code else body))

    def close(self) -> None:
        """Close the connection at once; what this turn of the loop has sent is lost."""
        self._end(flushes=False)

    def close_after_answers(self) -> None:
        """Close the connection after all that was sent."""
        self._end(flushes=True)

    def _end(self, *, flushes: bool) -> None:
        if not self.is_closed:
            self._server.forget(self)
            self._close(flushes)

    def breaks_at(self, xid: int, request: Request) -> bool:
        """Apply a planned fault. Returns whether the request must not be executed."""
        fault = self.fault
        if fault is None or not fault.matches(request):
            return False
        self.fault = None
        if fault.done():
            self._loses_xid = xid
            return False
        self.close()
        return True


class Server:
    """One server of an ensemble; see `Ensemble` for its part in decisions.

    Args:
        address: of its clients' connections.

    Attributes:
        number: 1 and up.
        node: of the simulation; replaced by a new one at each start.
        applied: number of transactions of the log that are applied to the tree.
        serves: whether it accepts clients: it is up, and follows a leader or leads.
    """

    def __init__(self, number: int, address: str, node: SimNode, ensemble: "Ensemble") -> None:
        self.number = number
        self.address = address
        self.node = node
        self.name = node.name
        self._ensemble = ensemble
        self.tree = Tree()
        self.watches = Watches()
        self.ends: dict[ServerEnd, None] = {}
        self.applied = 0
        self.is_up = True
        self.serves = False

    # -- connections

    def accept(self, end: ServerEnd) -> None:
        self.ends[end] = None

    def forget(self, end: ServerEnd) -> None:
        """Drop a connection with its watches. Its writes go on."""
        end.is_closed = True
        end.pending.clear()
        if self.ends.pop(end, self) is None:
            self.watches.drop(end)

    def drop_clients(self) -> None:
        """Close all connections, as a server does that has lost its leader."""
        self.serves = False
        for end in list(self.ends):
            end.close()

    def received(self, end: ServerEnd, frame: bytes) -> None:
        if len(frame) > REQUEST_BYTES_MAX or not self.serves:
            end.close()
        elif not end.is_greeted:
            end.is_greeted = True
            self._greet(end, wire.greeting(frame))
        else:
            self._take(end, frame)

    def _greet(self, end: ServerEnd, greeting: Greeting) -> None:
        if greeting.zxid > self.tree.zxid:
            end.close()  # the client has seen a later state, and must find another server
        elif greeting.session:
            # Before anything else: a wrong password, too, ends the connection of the session.
            self._close_others(end, greeting.session)
            self._ensemble.resume(self, end, greeting)
        else:
            self._ensemble.open_session(self, end, greeting)

    def granted(self, end: ServerEnd, session: int, password: bytes, timeout_ms: int) -> None:
        """Answer a greeting. A timeout of 0 means that the session has ended."""
        if end.is_closed:
            return
        if not timeout_ms:
            end.send(wire.granted(session=0, password=bytes(16), timeout_ms=0))
            end.close_after_answers()
            return
        end.session = session
        end.send(wire.granted(session=session, password=password, timeout_ms=timeout_ms))

    def _close_others(self, end: ServerEnd, session: int) -> None:
        for other in list(self.ends):
            if other.session == session and other is not end:
                other.close()

    # -- requests

    def _take(self, end: ServerEnd, frame: bytes) -> None:
        self._ensemble.touch(self, end.session)
        xid, kind = wire.header(frame)
        if kind not in _KNOWN or kind in self._ensemble.unknown:
            end.answer(xid, Code.UNIMPLEMENTED, zxid=-1)
            end.close_after_answers()
            return
        op = Op(kind)
        try:
            request = wire.request(op, frame)
        except wire.Undecodable:
            request = None
        if request is not None and end.breaks_at(xid, request):
            return
        if op == Op.AUTH:
            self._authenticate(end, xid, request)
            return
        waits = op in WRITES or op == Op.SYNC
        end.pending.append(_Pending(xid, request, waits=waits))
        if op == Op.SYNC:
            self._ensemble.sync(self, Origin(end, xid))
        elif waits:
            self._ensemble.propose(
                self, Proposal(self.number, end.session, request, tuple(end.identities), Origin(end, xid))
            )
        else:
            self._advance(end)

    def _authenticate(self, end: ServerEnd, xid: int, request: Request | None) -> None:
        identity = None if request is None else access.identity(request.scheme, request.data or b"")
        if identity is None:
            end.answer(xid, Code.AUTH_FAILED, zxid=0)
            end.close_after_answers()
            return
        if identity not in end.identities:
            end.identities.append(identity)
        end.answer(xid, Code.OK, zxid=0)

    def _advance(self, end: ServerEnd) -> None:
        """Answer the requests up to the next write."""
        while end.pending and not end.pending[0].waits:
            pending = end.pending.popleft()
            if pending.request is None:
                end.answer(pending.xid, Code.MARSHALLING)
                continue
            try:
                body = reads.serve(self.tree, self.watches, end, pending.request, end.identities)
            except Refused as refused:
                end.answer(pending.xid, refused.code)
            else:
                end.answer(PING_XID if pending.request.op == Op.PING else pending.xid, Code.OK, body)

    # -- transactions

    def apply(self, txn: Txn, proposal: Proposal | None) -> None:
        """Apply the next transaction of the log; answer the request if it came from here."""
        self.applied += 1
        results = self.tree.apply(txn, self.watches)
        origin = None if proposal is None or proposal.server != self.number else proposal.origin
        if origin is not None and not origin.end.is_closed:
            assert proposal is not None
            if proposal.opens is not None:
                self.granted(origin.end, txn.session, proposal.opens.password, proposal.opens.timeout_ms)
            else:
                self._answer(origin, proposal.request, results)
        if txn.changes and isinstance(txn.changes[0], SessionClosed):
            for end in list(self.ends):
                if end.session == txn.session:
                    end.close()

    def _answer(self, origin: Origin, request: Request | None, results: list[Result]) -> None:
        end, xid = origin
        pending = end.pending.popleft()
        assert pending.xid == xid, "writes of one connection are answered in their order"
        first = results[0].change if results else None
        if request is not None and request.op == Op.MULTI and not _is_of_connection(first):
            end.answer(xid, Code.OK, wire.multi(_result(result) for result in results))
        elif isinstance(first, Failed) and first.code == Code.SESSION_MOVED:
            end.close_after_answers()
        elif isinstance(first, Failed):
            end.answer(xid, first.code)
        else:
            _, body = _result(results[0])
            end.answer(xid, Code.OK, body)
            if isinstance(first, SessionClosed):
                end.close_after_answers()
        self._advance(end)

    def synced(self, origin: Origin) -> None:
        """Answer a sync: all transactions that were decided before it are applied."""
        end, xid = origin
        if not end.is_closed:
            pending = end.pending.popleft()
            assert pending.xid == xid
            if pending.request is None:
                end.answer(xid, Code.MARSHALLING)
            else:
                end.answer(xid, Code.OK, wire.text(pending.request.path))
            self._advance(end)


def _is_of_connection(change: Any) -> bool:
    """Returns whether a whole request failed because of its session."""
    return isinstance(change, Failed) and change.code in (
        Code.SESSION_EXPIRED,
        Code.SESSION_MOVED,
        Code.MARSHALLING,
    )


def _result(result: Result) -> tuple[Op | Code, bytes]:
    """Returns the kind and the body of one operation's result."""
    change = result.change
    match change:
        case Failed(code=code):
            return code, b""
        case Created(path=path, op=op):
            body = wire.text(path)
            return op, body + _stat(result) if op == Op.CREATE_2 else body
        case Deleted():
            return Op.DELETE, b""
        case DataSet():
            return Op.SET_DATA, _stat(result)
        case AclSet():
            return Op.SET_ACL, _stat(result)
        case Checked():
            return Op.CHECK, b""
        case _:
            return Op.CLOSE, b""


def _stat(result: Result) -> bytes:
    assert result.stat is not None
    return wire.stat(result.stat)
