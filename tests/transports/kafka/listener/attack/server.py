"""Target process of attacks: a controller with three brokers behind a Kafka listener, and meters.

Run as `python -m tests.transports.kafka.listener.attack.server [OPTION]`. OPTION is `--tls CERT KEY`, or
`--plain CERT KEY [patient]` with logins, or `OPEN_FILES [late]`. "patient" waits for an hour for logins, frames and
memory; "late" sets the limit of open files after the listener has started. It prints its port and the brokers' epochs.
For each line of its input it prints the meter readings since the previous line. It ends with its input.
"""

import asyncio
import contextlib
import gc
import importlib.util
import json
import os
import resource
import ssl
import sys
import threading
import time
from collections.abc import Collection
from typing import Any

import anyio

from kactl.actors.system import Controller
from kactl.cli.serving import collecting
from kactl.kafka.own_controller import ListenerController
from kactl.model import Endpoint
from kactl.participant.participant import Participant
from kactl.runtime.budget import Rate, Unit
from kactl.security.access import Acl, AclAuthorizer, Acls, BrokerPrincipals, Operation, topic
from kactl.security.sasl import ScramVerifier, verifier
from kactl.security.sasl.scram import ITERATIONS_MIN, Name
from kactl.stores.memory import MemoryStore
from kactl.transports.kafka.listener import (
    BoundListener,
    KafkaListener,
    ListenerSecurity,
    ListenerSettings,
    authentication,
    connection,
)
from kactl.transports.kafka.listener.authentication import Authentication
from kactl.transports.kafka.listener.limits import Limits
from kactl.transports.memory import MemoryHub
from tests.support.processor_time import unit_s

# Two brokers share an address and, in some attacks, the attacker has the same address.
BROKERS = {1: "127.0.0.1", 2: "127.0.0.1", 3: "127.0.0.9"}
CONTROLLER = 900
# Of the users of a server with logins: a super user, a broker, and a user with some rights on some topics.
PASSWORDS = {"client": "client-secret", "broker-3": "broker-secret", "listed": "listed-secret"}
# Topics of the last one begin so.
LISTED_PREFIX = "t"
_TICK_S = 0.002
# Steps from this processor time on are measured in units.
_LONG_S = 0.02
# Instead of the limit of a login, where connections are to outlast a slow machine.
_PATIENT_S = 3_600.0


class Meters:
    """Longest blocking of the event loop, and the resources used by the process."""

    def __init__(self, listener: KafkaListener) -> None:
        self._listener = listener
        self._hold_s = 0.0
        self._work_s = 0.0
        self._long_steps: list[tuple[float, float, float, float]] = []
        self._cpu_s = time.process_time()
        self._collect_s = 0.0
        self._collecting_s = 0.0
        self._connections = 0
        self._checks = Checks()
        self._spare = os.open(os.devnull, os.O_RDONLY)
        gc.callbacks.append(self._collected)

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting_s = time.thread_time()
        else:
            self._collect_s = max(self._collect_s, time.thread_time() - self._collecting_s)

    async def tick(self) -> None:
        last, last_cpu = time.monotonic(), time.thread_time()
        while True:
            await asyncio.sleep(_TICK_S)
            now, now_cpu = time.monotonic(), time.thread_time()
            self._hold_s = max(self._hold_s, now - last - _TICK_S)
            if now_cpu - last_cpu < _LONG_S:
                self._work_s = max(self._work_s, now_cpu - last_cpu)
            else:
                self._long_steps.append((last, now, now_cpu - last_cpu, unit_s()))
                now, now_cpu = time.monotonic(), time.thread_time()
            last, last_cpu = now, now_cpu
            self._connections = max(self._connections, self._listener.counters.connections)

    def read(self) -> dict[str, Any]:
        counters, cpu_s = self._listener.counters, time.process_time()
        os.close(self._spare)  # the readings need a file of their own, while connections may have taken all others
        readings = {
            "hold_s": self._hold_s,
            # Processor time of the loop between two ticks: its blocking time without other processes. Long steps have
            # their begin and end, too, by which pauses of the machine are subtracted, and the unit of that moment.
            "work_s": self._work_s,
            "long_steps": self._long_steps,
            "collect_s": self._collect_s,
            "cpu_s": cpu_s - self._cpu_s,
            "unit_s": unit_s(),
            "rss": _rss(),
            "rss_max": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "descriptors": len(os.listdir("/proc/self/fd")),
            "connections": counters.connections,
            "connections_max": self._connections,
            "checks": self._checks.begun,
            "checks_max": self._checks.at_once_max,
            "checks_in_loop": self._checks.in_loop,
            "identified": counters.identified,
            "reserved": dict(counters.reserved()),
            "refused": dict(counters.rejected),
            "requests": dict(counters.requests),
        }
        self._spare = os.open(os.devnull, os.O_RDONLY)
        self._hold_s, self._work_s, self._collect_s, self._cpu_s = 0.0, 0.0, 0.0, time.process_time()
        self._long_steps = []
        return readings


class Checks:
    """Counts the derivations of keys from passwords.

    Attributes:
        at_once_max: the most that ran at a time.
        in_loop: those that ran in the thread of the event loop.
    """

    def __init__(self) -> None:
        self.begun = self.at_once_max = self.in_loop = 0
        self._running = 0
        self._lock = threading.Lock()
        self._loop_thread = threading.get_ident()
        authentication.verifier = self._counted  # type: ignore[attr-defined]

    def _counted(self, *arguments: Any, **more: Any) -> ScramVerifier:
        with self._lock:
            self.begun += 1
            self._running += 1
            self.at_once_max = max(self.at_once_max, self._running)
            self.in_loop += threading.get_ident() == self._loop_thread
        try:
            return verifier(*arguments, **more)
        finally:
            with self._lock:
                self._running -= 1


class Users:
    """The users of a server with logins, by SCRAM-SHA-512."""

    def __init__(self) -> None:
        self._known = {
            name: verifier("SCRAM-SHA-512", password, salt=name.encode(), iterations=4096)
            for name, password in PASSWORDS.items()
        }

    async def scram_verifier(self, mechanism: Name, username: str) -> ScramVerifier | None:
        return self._known.get(username) if mechanism == "SCRAM-SHA-512" else None

    def iterations(self, mechanism: Name) -> Collection[int]:
        return (ITERATIONS_MIN,)


def _rss() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


async def _input() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def main() -> None:
    hub, store = MemoryHub(), MemoryStore()
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(store)
        for broker, host in BROKERS.items():
            theirs = await stack.enter_async_context(store.another())
            # Registered under another listener name, so that nothing is relayed to them.
            endpoints = (Endpoint("CLIENT", host, 9092),)
            await stack.enter_async_context(
                Participant(broker, store=theirs, hub=hub, endpoints=endpoints, session_timeout_ms=30_000)
            )
        controller = await stack.enter_async_context(Controller(CONTROLLER, store=store.another(), hub=hub))
        await controller.wait_active()
        while len(controller.brokers()) < len(BROKERS):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        socket = BoundListener(Endpoint("INTERNAL", "127.0.0.1", 0))
        port = socket.port
        limits = Limits()
        if sys.argv[4:] == ["patient"]:
            connection.LOGIN_TIMEOUT_S = _PATIENT_S  # type: ignore[attr-defined]
            limits = limits._replace(
                first_timeout_s=_PATIENT_S, frame_timeout_s=_PATIENT_S, reserve_timeout_s=_PATIENT_S
            )
        served = ListenerController(controller)
        make = {"--tls": encrypted, "--plain": with_passwords}.get("".join(sys.argv[1:2]))
        security = {} if make is None else {"INTERNAL": make(*sys.argv[2:4])}
        listener = await stack.enter_async_context(
            KafkaListener(served, {"INTERNAL": socket}, ListenerSettings(security=security, limits=limits))
        )
        if "unpaid" in sys.argv:
            # Their account would let the largest requests wait for minutes.
            served.budget.limit(Unit.WORK, Rate(0, 0))
            served.budget.limit(Unit.PARTITIONS, Rate(10_000, 10_000))
        if sys.argv[2:] == ["late"]:
            limit_files()
        # As in `kactl up`: long-lived objects are frozen, and collections wait until the controller has no events.
        gc.collect()
        gc.freeze()
        await stack.enter_async_context(collecting(controller))
        meters = Meters(listener)
        ticking = asyncio.create_task(meters.tick())
        lines = await _input()
        print(
            json.dumps({"port": port, "epochs": {member.id: member.epoch for member in controller.brokers()}}),
            flush=True,
        )
        while await lines.readline():
            print(json.dumps(meters.read()), flush=True)
        ticking.cancel()


def encrypted(cert: str, key: str) -> ListenerSecurity:
    """Returns the security of a listener of protocol SSL."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    return ListenerSecurity(Authentication("SSL"), tls, None)


def with_passwords(cert: str, key: str) -> ListenerSecurity:
    """Returns the security of a listener of protocol SASL_SSL with PLAIN."""
    own = Authentication("SASL_SSL", mechanisms=["PLAIN"], users=Users())
    authorizer = AclAuthorizer(
        super_users=["User:client"], brokers=BrokerPrincipals(pattern="User:broker-{id}"), acls=_lists()
    )
    return ListenerSecurity(own, encrypted(cert, key).tls, authorizer)


def _lists() -> Acls:
    """Returns lists with the rights of one user on some topics, and those of many others on all topics."""
    everywhere = [Acl(f"User:user-{number}", "*", Operation.READ) for number in range(1000)]
    own = [Acl("User:listed", "*", operation) for operation in (Operation.CREATE, Operation.DELETE, Operation.ALTER)]
    return Acls({topic("*"): everywhere}, {topic(LISTED_PREFIX): own})


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1] != "unpaid":
        limit_files()
    # As `kactl`, which uses it where it exists.
    anyio.run(main, backend_options={"use_uvloop": importlib.util.find_spec("uvloop") is not None})
