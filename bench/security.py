"""Cost of TLS, logins and authorization at a Kafka listener.

    python -m bench.security [--connections 100] [--requests 2000] [--runs 5] [--full]

One listener for each security protocol, in one process with its controller, and a client in another process. Protocols
take turns. Times are processor time of the process with the listeners.

* `connection`: one connection from its beginning to its end, with the handshake of TLS and the login by SCRAM-SHA-512,
  if the protocol has them, and one ApiVersions.
* `request`: one ListPartitionReassignments over an open connection. Listeners other than PLAINTEXT authorize it by the
  lists, of which there are a thousand.
* `open`: PLAINTEXT in a process without logins, which does not authorize; the other rows decide about each request.
* `token`: the decision about a token of the admin API that is refused, the median of 10,000: its id is unknown, or its
  secret is wrong, in turn. Their difference is the time by which a client could find out ids.
"""

import argparse
import asyncio
import contextlib
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Final, NamedTuple

from bench.figures import Found, Unit
from bench.run import main, module, say, undisturbed
from kactl.actors.system import Controller
from kactl.kafka.own_controller import ListenerController
from kactl.model import Endpoint
from kactl.participant.participant import Participant
from kactl.security.access import CLUSTER, Acl, AclAuthorizer, Acls, Operation, topic
from kactl.security.access.role import Role
from kactl.security.access.tokens import ID_BYTES, SECRET_BYTES, Tokens, new_token
from kactl.security.sasl import ScramVerifier, verifier
from kactl.security.sasl.scram import ITERATIONS_MIN, Name
from kactl.security.tls.server_tls import ServerTls
from kactl.stores.memory import MemoryStore
from kactl.transports.kafka.listener import BoundListener, KafkaListener, ListenerSecurity, ListenerSettings
from kactl.transports.kafka.listener.authentication import Authentication, SecurityProtocol
from kactl.transports.memory import MemoryHub
from tests.support.certificates import Authority

from .security_client import BROKER, PASSWORD, USER

NAME: Final = "security"
PROTOCOLS: Final[tuple[SecurityProtocol, ...]] = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
OPEN: Final = "open"
_LISTS: Final = 1000
# Tokens in the file, and refused ones in each run.
_TOKENS: Final = 1000
_TRIES: Final = 10_000


class _Users:
    """The user of the client."""

    def __init__(self) -> None:
        self._known = verifier("SCRAM-SHA-512", PASSWORD, salt=b"salt-of-the-user", iterations=4096)

    async def scram_verifier(self, mechanism: Name, username: str) -> ScramVerifier | None:
        return self._known if (mechanism, username) == ("SCRAM-SHA-512", USER) else None

    def iterations(self, mechanism: Name) -> Collection[int]:
        return (ITERATIONS_MIN,)


class _Client(NamedTuple):
    """The client's process."""

    process: asyncio.subprocess.Process

    async def run(self, *command: object) -> None:
        """Run one command to its end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(" ".join(map(str, command)).encode() + b"\n")
        answer = await self.process.stdout.readline()
        if answer != b"done\n":
            raise RuntimeError(f"the client ended at {command}")


def _securities(folder: Path) -> dict[str, ListenerSecurity]:
    authority = Authority(folder)
    signed = authority.sign("listener")
    tls = ServerTls("kafka.tls", cert=str(signed.cert), key=str(signed.key), protocols=()).context
    lists = {topic(f"topic-{number}"): [Acl("User:other", "*", Operation.READ)] for number in range(_LISTS)}
    everybody = [Acl("User:*", "*", operation) for operation in (Operation.DESCRIBE, Operation.CLUSTER_ACTION)]
    authorizer = AclAuthorizer(acls=Acls({**lists, CLUSTER: everybody}))
    users = _Users()
    return {
        protocol: ListenerSecurity(
            Authentication(protocol, mechanisms=("SCRAM-SHA-512",), users=users),
            tls if protocol.endswith("SSL") else None,
            authorizer,
        )
        for protocol in PROTOCOLS
    } | {OPEN: ListenerSecurity()}


@contextlib.asynccontextmanager
async def _listening(securities: dict[str, ListenerSecurity]) -> AsyncIterator[tuple[int, dict[str, int]]]:
    """Run the listeners; yields the epoch of the broker that the client is, and the listeners' ports. Brokers have no
    quotas, and no limit of new connections."""
    async with contextlib.AsyncExitStack() as stack:
        hub, store = MemoryHub(), MemoryStore()
        await stack.enter_async_context(store)
        endpoints = (Endpoint("CLIENT", "127.0.0.1", 9092),)
        theirs = await stack.enter_async_context(store.another())
        await stack.enter_async_context(
            Participant(BROKER, store=theirs, hub=hub, endpoints=endpoints, session_timeout_ms=600_000)
        )
        controller = await stack.enter_async_context(Controller(900, store=store.another(), hub=hub))
        await controller.wait_active()
        (broker,) = controller.brokers()
        sockets = {name: BoundListener(Endpoint(name, "127.0.0.1", 0)) for name in securities}
        ports = {name: each.port for name, each in sockets.items()}
        settings = ListenerSettings(security=securities)
        await stack.enter_async_context(KafkaListener(ListenerController(controller), sockets, settings))
        yield broker.epoch, ports


@contextlib.asynccontextmanager
async def _client(ca: Path, epoch: int) -> AsyncIterator[_Client]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.security_client", str(ca), str(epoch),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield _Client(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class _Refusals:
    """Refused tokens of two kinds, in turn."""

    def __init__(self) -> None:
        chance = random.Random(1)
        made = [
            new_token(
                f"t{number}",
                Role.VIEWER,
                random=chance.randbytes(ID_BYTES + SECRET_BYTES),
                now_ms=0,
                expires_ms=None,
            )
            for number in range(2 * _TOKENS)
        ]
        self._tokens = Tokens(token.record for token in made[:_TOKENS])
        unknown = [token.text for token in made[_TOKENS:]]
        # The id of a token in the file, and the secret of another one.
        wrong = [f"{known.text[:15]}{text[15:]}" for known, text in zip(made, unknown, strict=False)]
        kinds = (("unknown id", unknown), ("wrong secret", wrong))
        self._tries = [(kind, texts[number % _TOKENS]) for number in range(_TRIES) for kind, texts in kinds]

    def measure(self, found: Found | None) -> None:
        """Add the median time of a decision for each kind, which other load on the machine changes least."""
        spent: dict[str, list[int]] = {"unknown id": [], "wrong secret": []}
        find, now_ns = self._tokens.find, time.perf_counter_ns
        with undisturbed():
            for kind, text in self._tries:
                began = now_ns()
                refused = find(text, now_ms=1, address="10.0.0.1")
                spent[kind].append(now_ns() - began)
                assert refused is None
        if found is not None:
            for kind, taken in spent.items():
                found.add(f"token/{kind}", "us", statistics.median(taken) / 1e3)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--connections", type=int, default=100, help="in each run")
    parser.add_argument("--requests", type=int, default=2000, help="in each run")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--full", action="store_true", help="the published size: ten times as many, and 10 runs")


async def measure(asked: argparse.Namespace, found: Found) -> None:
    factor, runs = (10, 10) if asked.full else (1, asked.runs)
    refusals = _Refusals()
    for run in range(runs + 1):
        refusals.measure(found if run else None)  # the first one is a warm-up
    with tempfile.TemporaryDirectory() as folder:
        securities = _securities(Path(folder))
        ca = Path(folder) / "authority.pem"
        async with _listening(securities) as (epoch, ports), _client(ca, epoch) as client:
            for run in range(runs + 1):
                for name, port in ports.items():
                    protocol = "PLAINTEXT" if name == OPEN else name
                    phases: tuple[tuple[str, int, Unit, float], ...] = (
                        ("connection", asked.connections * factor, "ms", 1e6),
                        ("request", asked.requests * factor, "us", 1e3),
                    )
                    for what, count, unit, scale in phases:
                        with undisturbed():
                            began = time.process_time_ns()
                            await client.run(what, port, protocol, count)
                            spent = time.process_time_ns() - began
                        if run:  # the first one is a warm-up
                            found.add(f"{name}/{what}", unit, spent / count / scale)
                say(f"run {run} of {runs}")


if __name__ == "__main__":
    main(module(__name__))
