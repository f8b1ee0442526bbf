"""One to five servers that agree on one order of transactions.

    server ──proposal──▶ leader: decides, gives the next number ──transaction──▶ every server applies it in order
                                                     └ the request's own server answers when it applies it

A transaction is decided when its leader reaches a majority. Followers receive it after the latency of their link, and
answer reads from what they have: clients of different servers see different states, and `sync` waits for the leader's.
Without a majority the leader keeps its proposals; after some ticks it gives up, and every server closes its clients'
connections until a new leader is elected. Sessions are the leader's: they survive elections with their whole timeout.

A decision and its acknowledgement by a majority are one step. To a client, a failure between the two looks like a lost
request or a lost answer.

Source: Leader, Follower, CommitProcessor, LearnerSessionTracker.
"""

from collections.abc import Callable, Collection
from typing import Final

from kactl.testing.clock import LoopClock
from kactl.testing.links import Links
from kactl.testing.loop import SimLoop

from . import preparation
from .codes import Code, Op
from .server import Origin, Proposal, Server, ServerEnd
from .sessions import TIMEOUT_TICKS_MAX, TIMEOUT_TICKS_MIN, Session, Sessions
from .tree import Change, Failed, RegisterBrokerAndReelect, SessionClosed, Tree, Txn
from .wire import Greeting

# Kind of the links between servers.
PEERS: Final = "zookeeper"
# Ticks without a majority, or without a leader, after which a server gives up. Source: syncLimit.
SYNC_TICKS: Final = 5
# Duration of an election.
ELECTION_MS: Final = (200.0, 2_000.0)
# Transactions that every server has applied are dropped when there are this many.
_LOG_LENGTH: Final = 1_000
_EPOCH_BITS: Final = 32
_SESSION_BITS: Final = 56
_PASSWORD_BYTES: Final = 16

# Receives each transaction when it is decided, with its proposal; None if the leader itself proposed it.
OnTxn = Callable[[Txn, Proposal | None], None]


class Ensemble:
    """The servers, and the state of their leader.

    Args:
        servers: number of servers, 1 to 5.
        tick_ms: unit of session timeouts, which are limited to 2 to 20 ticks.
        unknown: kinds of requests that these servers do not know, as older ones.

    Attributes:
        leader: None during elections.
        epoch: number of the leader's term; messages of earlier terms are dropped.
        name: of the ensemble in the history.
        on_txn: called with each transaction when it is decided, before it is applied.
    """

    def __init__(
        self, loop: SimLoop, links: Links, *, servers: int, tick_ms: float, unknown: Collection[Op] = ()
    ) -> None:
        assert 1 <= servers <= 5
        self._loop = loop
        self._links = links
        self._rng = loop.streams["zookeeper"]
        self._tick_ms = tick_ms
        self.name = "zookeeper"
        self._clock = LoopClock(loop)
        self.unknown = frozenset(unknown)
        self.sessions = Sessions(tick_ms)
        self.servers = [
            Server(number, f"10.0.0.{number}", loop.node(f"zookeeper {number}"), self)
            for number in range(1, servers + 1)
        ]
        self.leader: Server | None = None
        self.epoch = 0
        self.on_txn: list[OnTxn] = []
        self._zxid = 0
        self._next_session = 1
        self._log: list[tuple[Txn, Proposal | None]] = []
        self._log_start = 0  # number of transactions before the log
        self._held: list[Proposal] = []
        self._by_hand: list[Callable[[Tree], tuple[Change, ...]]] = []
        self._silent_ticks = dict.fromkeys(self.servers, 0)
        self._election_due = False
        self._elect()
        self._schedule_tick()

    # -- decisions, on the leader's node

    def propose(self, server: Server, proposal: Proposal) -> None:
        """Send a write from a server to the leader."""
        self._to_leader(server, lambda: self._decide_when_possible(proposal))

    def _to_leader(self, server: Server, deliver: Callable[[], None]) -> None:
        leader, epoch = self.leader, self.epoch
        if leader is None:
            return  # the connections are being closed
        if leader is server:
            deliver()
            return

        def arrive() -> None:
            if self.epoch == epoch:
                deliver()

        self._links.channel(PEERS, server.name, leader.name).send(arrive, to=leader.node)

    def _decide_when_possible(self, proposal: Proposal) -> None:
        if self._held or not self._has_majority():
            self._held.append(proposal)
        else:
            self._decide(proposal)

    def _decide(self, proposal: Proposal) -> None:
        assert self.leader is not None
        session = proposal.session
        if proposal.opens is not None:
            opened = Session(session, proposal.opens.timeout_ms, proposal.opens.password, proposal.server)
            self.sessions.add(opened, self._loop.time())
            self._commit(session, (proposal.opens,), proposal)
            return
        known = self.sessions.get(session)
        changes: tuple[Change, ...]
        if proposal.request is None:
            changes = (Failed(Code.MARSHALLING),)
        elif known is None:
            changes = (Failed(Code.SESSION_EXPIRED),)
        elif known.server != proposal.server:
            changes = (Failed(Code.SESSION_MOVED),)
        elif proposal.request.op == Op.CLOSE:
            self._close_session(session, proposal)
            return
        else:
            changes = preparation.prepare(self.leader.tree, proposal.request, session, proposal.identities)
        self._commit(session, changes, proposal)

    def _close_session(self, session: int, proposal: Proposal | None) -> None:
        assert self.leader is not None
        paths = tuple(self.leader.tree.ephemerals.get(session, ()))
        self.sessions.remove(session)
        self._commit(session, (SessionClosed(paths),), proposal)

    def _commit(self, session: int, changes: tuple[Change, ...], proposal: Proposal | None) -> None:
        assert self.leader is not None
        self._zxid += 1
        txn = Txn(self._zxid, self._clock.now_ms(), session, changes)
        self._log.append((txn, proposal))
        for listener in self.on_txn:
            listener(txn, proposal)
        for server in self.servers:
            if server is not self.leader and server.serves:
                self._send(server)
        self.leader.apply(txn, proposal)
        self._trim()

    def _send(self, server: Server) -> None:
        """Send the last transaction of the log to a follower."""
        assert self.leader is not None
        count, epoch = self._log_start + len(self._log), self.epoch

        def arrive() -> None:
            if self.epoch == epoch:
                self._catch_up(server, count)

        self._links.channel(PEERS, self.leader.name, server.name).send(arrive, to=server.node)

    def _catch_up(self, server: Server, count: int) -> None:
        while server.applied < count:
            server.apply(*self._log[server.applied - self._log_start])

    def _trim(self) -> None:
        if len(self._log) > _LOG_LENGTH:
            applied = min(server.applied for server in self.servers)
            del self._log[: applied - self._log_start]
            self._log_start = applied

    def sync(self, server: Server, origin: Origin) -> None:
        """Tell a server when it has applied all transactions that are decided by now."""

        def at_leader() -> None:
            leader = self.leader
            assert leader is not None
            if leader is server:
                server.synced(origin)
                return
            count, epoch = self._log_start + len(self._log), self.epoch

            def back() -> None:
                if self.epoch == epoch:
                    self._catch_up(server, count)
                    server.synced(origin)

            self._links.channel(PEERS, leader.name, server.name).send(back, to=server.node)

        self._to_leader(server, at_leader)

    # -- sessions

    def open_session(self, server: Server, end: ServerEnd, greeting: Greeting) -> None:
        """Open a new session for a connection."""
        number = (server.number << _SESSION_BITS) + self._next_session
        self._next_session += 1
        timeout_ms = min(
            max(greeting.timeout_ms, TIMEOUT_TICKS_MIN * int(self._tick_ms)), TIMEOUT_TICKS_MAX * int(self._tick_ms)
        )
        opens = RegisterBrokerAndReelect(timeout_ms, self._rng.randbytes(_PASSWORD_BYTES))
        self.propose(server, Proposal(server.number, number, None, (), Origin(end, 0), opens))

    def resume(self, server: Server, end: ServerEnd, greeting: Greeting) -> None:
        """Move a session to another connection, if it exists."""

        def at_leader() -> None:
            leader, session = self.leader, self.sessions.get(greeting.session)
            timeout_ms = 0
            if session is not None and session.password == greeting.password:
                session.server, timeout_ms = server.number, session.timeout_ms
                self.sessions.touch(session, self._loop.time())

            def back() -> None:
                server.granted(end, greeting.session, greeting.password, timeout_ms)

            assert leader is not None
            if leader is server:
                back()
            else:
                self._links.channel(PEERS, leader.name, server.name).send(back, to=server.node)

        self._to_leader(server, at_leader)

    def touch(self, server: Server, number: int) -> None:
        """A client has sent something to a server. The leader knows it at once if it reaches the server."""
        session = self.sessions.get(number)
        if session is not None and self.leader is not None and self._reaches(server):
            self.sessions.touch(session, self.leader.node.clock.of(self._loop.now_s))

    def expire(self, number: int) -> bool:
        """End a session now, as after its timeout. Returns whether it existed."""
        if self.leader is None or self.sessions.get(number) is None:
            return False
        self._close_session(number, None)
        return True

    def _expire_due(self) -> None:
        """End the sessions that are due; runs on the leader's node."""
        if self.leader is not None and self._has_majority():
            for session in self.sessions.due(self._loop.time()):
                self._close_session(session.number, None)

    # -- leaders

    def _reaches(self, server: Server) -> bool:
        """Returns whether the leader and a server can talk to each other."""
        leader = self.leader
        assert leader is not None
        if leader is server:
            return True
        ways = ((leader.name, server.name), (server.name, leader.name))
        return (
            server.is_up
            and server.node.state == "running"
            and not any(self._links.channel(PEERS, *way).is_cut for way in ways)
        )

    def _has_majority(self) -> bool:
        return 2 * sum(map(self._reaches, self.servers)) > len(self.servers)

    def _schedule_tick(self) -> None:
        self._links.call_at(self._loop.now_s + self._tick_ms / 1000, self._tick, on=None)

    def _tick(self) -> None:
        self._schedule_tick()
        if self.leader is None:
            self._elect_soon()
            return
        leader = self.leader
        for server in self.servers:
            self._silent_ticks[server] = 0 if self._is_fine(server) else self._silent_ticks[server] + 1
        if len(self.servers) > 1 and self._silent_ticks[leader] > SYNC_TICKS:
            self.step_down()
            return
        for server in self.servers:
            if server is leader:
                continue
            if server.serves and self._silent_ticks[server] == SYNC_TICKS + 1:
                self._links.call_at(self._loop.now_s, server.drop_clients, on=server.node)
            elif not server.serves and not self._silent_ticks[server]:
                self._join(server)
        epoch = self.epoch
        self._links.call_at(self._loop.now_s, lambda: self._at_leader_tick(epoch), on=leader.node)

    def _is_fine(self, server: Server) -> bool:
        if server is self.leader:
            return server.node.state == "running" and self._has_majority()
        return self._reaches(server)

    def _at_leader_tick(self, epoch: int) -> None:
        if self.epoch != epoch:
            return
        if self._held and self._has_majority():
            held, self._held = self._held, []
            for proposal in held:
                self._decide(proposal)
        self._write_by_hand()
        self._expire_due()

    def _join(self, server: Server) -> None:
        """Let a server follow the leader: it applies the transactions that it has missed."""
        epoch = self.epoch

        def arrive() -> None:
            if self.epoch == epoch and server.is_up:
                self._catch_up(server, self._log_start + len(self._log))
                server.serves = True

        self._links.call_at(self._loop.now_s, arrive, on=server.node)

    def step_down(self) -> None:
        """End the term of the leader: every server closes the connections of its clients."""
        self.leader = None
        self.epoch += 1
        for server in self.servers:
            self._links.call_at(self._loop.now_s, server.drop_clients, on=server.node)
        self._elect_soon()

    def _elect_soon(self) -> None:
        if not self._election_due:
            self._election_due = True
            delay_s = self._rng.uniform(*ELECTION_MS) / 1000
            self._links.call_at(self._loop.now_s + delay_s, self._elect, on=None)

    def _elect(self) -> None:
        """Elect a server that reaches a majority. It has all transactions that were decided."""
        self._election_due = False
        candidates = [server for server in self.servers if server.is_up and server.node.state == "running"]
        for candidate in self._rng.sample(candidates, len(candidates)):
            self.leader = candidate
            if self._has_majority():
                break
        else:
            self.leader = None
            return
        self.epoch += 1
        leader = self.leader
        self._silent_ticks = dict.fromkeys(self.servers, 0)
        self._catch_up(leader, self._log_start + len(self._log))
        self._finish_held()
        if len(self.servers) > 1:
            self._zxid = self.epoch << _EPOCH_BITS
        self.sessions.restart(leader.node.clock.of(self._loop.now_s))
        leader.serves = True
        for server in self.servers:
            if server is not leader and self._reaches(server):
                self._join(server)

    def _finish_held(self) -> None:
        """Decide some of the proposals that the last leader has written to its own log only; the others are lost."""
        held, self._held = self._held, []
        for proposal in held[: self._rng.randint(0, len(held))]:
            self._decide(proposal)

    # -- servers

    def by_hand(self, plan: Callable[[Tree], tuple[Change, ...]]) -> None:
        """Write as an operator with a tool of the store does: now, or when there is a leader.

        Args:
            plan: returns the changes, for the leader's tree.
        """
        self._by_hand.append(plan)
        self._write_by_hand()

    def _write_by_hand(self) -> None:
        while self._by_hand and self.leader is not None and self._has_majority():
            changes = self._by_hand.pop(0)(self.leader.tree)
            if changes:
                self._commit(0, changes, None)

    def crash(self, server: Server) -> None:
        """End a server's process. What it has applied is on its disk."""
        server.is_up = False
        server.drop_clients()
        self._loop.kill(server.node)
        if self.leader is server:
            self.step_down()

    def start(self, server: Server) -> None:
        """Start a server again."""
        if not server.is_up:
            server.is_up = True
            server.node = self._loop.node(server.name)
            self._silent_ticks[server] = 0
            if self.leader is None:
                self._elect_soon()
