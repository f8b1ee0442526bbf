"""Transactions as `store.commit` and `store.session` events of the history; see `tests.sim.engine.checkers.events`."""

from collections.abc import Iterator
from typing import Any, Final

from kactl.testing.history import History
from tests.sim.engine.worlds.written import Op

from .codes import Code
from .codes import Op as Request
from .ensemble import Ensemble
from .entries import ABSENT, CONTROLLER_EPOCH, PRESENT, has_versions, key_of, value_of
from .server import Origin, Proposal, ServerEnd
from .tree import Change, Created, DataSet, Deleted, Failed, RegisterBrokerAndReelect, SessionClosed, Txn

# Version of a write that names none, in requests and in the history.
_ANY: Final = -1
UNNAMED: Final = -2
_CONFLICTS: Final = frozenset({Code.BAD_VERSION, Code.NODE_EXISTS, Code.NO_NODE, Code.NOT_EMPTY})


class Commits:
    """Records the transactions of an ensemble when they are decided.

    Args:
        chroot: of the store.
    """

    def __init__(self, history: History, ensemble: Ensemble, chroot: str) -> None:
        self._history = history
        self._ensemble = ensemble
        self._chroot = chroot
        self._numbers = 0
        self._epochs: dict[int, int] = {}  # by the version of the node
        self._epoch = 0
        self._clients: dict[int, str] = {}
        self._decided: dict[tuple[ServerEnd, int], tuple[int, bool]] = {}
        ensemble.on_txn.append(self._on_txn)

    def _on_txn(self, txn: Txn, proposal: Proposal | None) -> None:
        client = "" if proposal is None else proposal.origin.end.client
        match txn.changes:
            case (RegisterBrokerAndReelect(),):
                self._clients[txn.session] = client
                self._session(txn.session, "opened")
            case (SessionClosed(paths=paths),):
                operation = "expire" if proposal is None else "close"
                ops = list(self._ops(txn, [Deleted(path) for path in paths]))
                if ops:
                    self._commit(client, operation, len(self._history.events), None, ops, [], "ok")
                self._session(txn.session, "expired" if proposal is None else "closed")
            case changes:
                self._changed(txn, changes, proposal, client)

    def _changed(self, txn: Txn, changes: tuple[Change, ...], proposal: Proposal | None, client: str) -> None:
        operation = None if proposal is None else proposal.origin.end.operation(proposal.origin.xid)
        conflicts: list[str] = []
        outcome = "ok"
        if changes and isinstance(changes[0], Failed):
            outcome, conflicts = self._failure(changes, proposal)
        ops = list(self._ops(txn, changes, self._unconditional(proposal)))
        if not ops and (operation is None or outcome == "ok"):
            return
        name = "by hand" if operation is None else operation.name
        sent = len(self._history.events) if operation is None else operation.sent
        fence = self._fence(proposal, None if operation is None else operation.fence)
        number = self._commit(client, name, sent, fence, ops, conflicts, outcome)
        if proposal is not None:
            self._decided[proposal.origin.end, proposal.origin.xid] = (number, outcome == "ok")

    def _commit(
        self,
        client: str,
        operation: str,
        sent: int,
        fence: int | None,
        ops: list[Op],
        conflicts: list[str],
        outcome: str,
    ) -> int:
        number = self._next_number()
        self._history.record(
            "store.commit",
            node=self._ensemble.name,
            txn=number,
            client=client,
            operation=operation,
            sent=sent,
            fence=fence,
            ops=ops,
            conflicts=conflicts,
            outcome=outcome,
        )
        return number

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    # -- entries

    def _unconditional(self, proposal: Proposal | None) -> frozenset[str]:
        """Returns the paths of the nodes that a request writes whatever their versions are."""
        request = None if proposal is None else proposal.request
        parts = () if request is None else request.parts if request.op == Request.MULTI else (request,)
        return frozenset(part.path for part in parts if part.op == Request.SET_DATA and part.version == _ANY)

    def _ops(
        self, txn: Txn, changes: list[Any] | tuple[Change, ...], unconditional: frozenset[str] = frozenset()
    ) -> Iterator[Op]:
        """Yields the entries that a transaction writes. Earlier changes of the same transaction count as stored."""
        assert self._ensemble.leader is not None
        nodes = self._ensemble.leader.tree.nodes
        written: dict[str, Op] = {}
        for change in changes:
            if not isinstance(change, Created | DataSet | Deleted):
                continue
            key = key_of(change.path[len(self._chroot) :]) if change.path.startswith(self._chroot + "/") else None
            node = nodes.get(change.path)
            if key is None or (key == "producer ids" and isinstance(change, Created) and change.data is None):
                continue
            if key in written and key.startswith("brokers/") and isinstance(change, DataSet):
                continue  # a registration is created, and filled after that
            before = written[key].new if key in written else self._version(key, None if node is None else node.version)
            if change.path in unconditional and has_versions(key):
                before = UNNAMED
            op = self._op(key, before, change, txn.zxid if node is None or key in written else node.czxid)
            if op is not None:
                written[key] = op
                yield op

    def _version(self, key: str, version: int | None) -> int:
        if version is None:
            return ABSENT
        if key == "epoch":
            return self._epoch or ABSENT
        return version if has_versions(key) else PRESENT

    def _op(self, key: str, before: int, change: Created | DataSet | Deleted, created: int) -> Op | None:
        if isinstance(change, Deleted):
            return Op(key, before, ABSENT, None)
        value = value_of(key, change.data, created=created, epoch=self._epoch)
        if key == "epoch":
            version = 0 if isinstance(change, Created) else change.version
            self._epochs[version] = self._epoch = value["epoch"]
            # The first node has the epoch 0, which no controller has.
            return Op(key, before, self._epoch, value) if self._epoch else None
        after = (0 if isinstance(change, Created) else change.version) if has_versions(key) else PRESENT
        return Op(key, before, after, value)

    def _failure(self, changes: tuple[Change, ...], proposal: Proposal | None) -> tuple[str, list[str]]:
        """Returns the outcome of a request that failed, and the keys that it did not write."""
        request = None if proposal is None else proposal.request
        parts = () if request is None else request.parts if request.op == Request.MULTI else (request,)
        for change, part in zip(changes, parts, strict=False):
            if isinstance(change, Failed) and change.code not in (Code.OK, Code.RUNTIME_INCONSISTENCY):
                if part.path == self._chroot + CONTROLLER_EPOCH and part.op == Request.CHECK:
                    return "fenced", []
                key = key_of(part.path[len(self._chroot) :])
                return ("conflict", [key] if key else []) if change.code in _CONFLICTS else ("error", [])
        return "error", []

    def _fence(self, proposal: Proposal | None, claimed: int | None) -> int | None:
        """Returns the epoch whose fence a request presents: by the version of the node that it checks."""
        request = None if proposal is None else proposal.request
        if request is None:
            return None
        for part in request.parts:
            if part.op == Request.CHECK and part.path == self._chroot + CONTROLLER_EPOCH:
                return self._epochs.get(part.version, claimed)
        return None

    # -- sessions and answers

    def _session(self, session: int, what: str) -> None:
        self._history.record(
            "store.session",
            node=self._ensemble.name,
            session=session,
            client=self._clients.get(session, ""),
            broker=-1,
            what=what,
        )

    def answered(self, origin: Origin) -> None:
        """Record that an answer has reached its client."""
        number, is_ok = self._decided.pop(origin, (0, False))
        if is_ok:
            self._history.record("store.answered", txn=number, client=origin.end.client)

    def lost(self, origin: Origin) -> None:
        """Record that a client does not learn the outcome of a request."""
        number, _ = self._decided.pop(origin, (0, False))
        client = origin.end.client
        self._history.record("store.unknown", txn=number or self._next_number(), client=client, done=number > 0)
