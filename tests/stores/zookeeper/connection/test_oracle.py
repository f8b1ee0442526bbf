"""The native connection compared with kazoo.

The same random requests, over both to one real server, yield the same responses and events in the same order, and the
same tree. Runs on both event loops that kactl supports.
"""

import random
from typing import Any, Final

import anyio
import pytest
from kazoo.exceptions import ZookeeperError
from kazoo.protocol.states import EventType, ZnodeStat

from kactl.stores.zookeeper import request
from kactl.stores.zookeeper.client import Client
from kactl.stores.zookeeper.request import MultiRead
from kactl.stores.zookeeper.set_watches import SetWatches
from tests.support.kazoo_connection import CLIENTS, KINDS, Kind
from tests.support.store_clients import SESSION_MS, WAIT_S
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.anyio, pytest.mark.interop]

PATHS: Final = ("/a", "/b", "/a/c", "/a/d", "/a/c/e", "/é")
TREES: Final = ("/a", "/a/c", "/b")
DATA: Final = (None, b"", b"x", b"\x00\xff" * 40, b"long" * 5_000)
EVENTS: Final = (EventType.CREATED, EventType.CHANGED, EventType.DELETED, EventType.CHILD)
ROUNDS: Final = 40
GROUP_MAX: Final = 25


@pytest.fixture(scope="module", params=[pytest.param(False, id="asyncio"), pytest.param(True, id="uvloop")])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


class Diary:
    """A client below its own node. Records all results and events in the order of receipt."""

    def __init__(self, connect: str, kind: Kind) -> None:
        self.listener: list[Any] = []
        self.client = Client(
            connect,
            session_timeout_ms=SESSION_MS,
            max_in_flight=7,
            on_watch=lambda kind, path: self.listener.append(("event", kind, path, "single")),
            factory=CLIENTS[kind],
        )

    async def watch(self, root: str) -> None:
        """Watches a tree, now or when it is requested again."""
        await self.client.watch_tree(root, lambda kind, path: self.listener.append(("event", kind, path, root)))

    async def ask(self, requests: list[Any]) -> None:
        """Sends some requests at once; each response is recorded when it is received."""
        left = len(requests)
        done = anyio.Event()

        def answered(responses: Any) -> None:
            nonlocal left
            assert responses.error is None, responses.error
            self.listener.append(plain_result(responses.results[0], self.client.chroot))
            left -= 1
            if not left:
                done.set()

        for each in requests:
            self.client.submit([each], answered)
        with anyio.fail_after(WAIT_S):
            await done.wait()

    async def __aenter__(self) -> "Diary":
        await self.client.open()
        await self.client.ask(request.create(self.client.chroot, None))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()


def plain_result(result: Any, chroot: str) -> Any:
    """Returns a response without the parts that differ between servers, sessions or roots."""
    if isinstance(result, ZnodeStat):
        return ("stat", result.version, result.cversion, bool(result.ephemeralOwner), result.dataLength,
                result.numChildren)  # fmt: skip
    if isinstance(result, ZookeeperError):
        return type(result).__name__
    if isinstance(result, str):
        return result.removeprefix(chroot)
    if isinstance(result, tuple | list):
        return [plain_result(each, chroot) for each in result]
    return result


def random_requests(rng: random.Random, client: Client) -> list[Any]:
    """Returns requests of all kinds, or a single one that arms many watches; its timing differs between the clients."""
    if rng.random() < 0.1:
        return [SetWatches(tuple(client.path(each) for each in rng.sample(PATHS, 3)))]
    return [random_request(rng, client) for _ in range(rng.randint(1, GROUP_MAX))]


def random_request(rng: random.Random, client: Client) -> Any:
    path, watch = rng.choice(PATHS), rng.random() < 0.4
    match rng.randrange(13):
        case 0:
            return client.get(path, watch=watch)
        case 1:
            return client.exists(path, watch=watch)
        case 2:
            return client.children(rng.choice((path, "")), watch=watch)
        case 3:
            return MultiRead(tuple(client.path(rng.choice(PATHS)) for _ in range(rng.randint(0, 9))))
        case 4:
            fence = [request.check(client.path(path), rng.randint(0, 1))] if rng.random() < 0.5 else []
            return request.multi([*fence, *(random_write(rng, client) for _ in range(rng.randint(1, 5)))])
        case 5:
            return request.sync(client.path("/"))
        case 6:
            return request.watch_tree(client.path(rng.choice(TREES)))
        case 7:
            return request.unwatch(client.path(rng.choice(TREES)))
        case _:
            return random_write(rng, client)


def random_write(rng: random.Random, client: Client) -> Any:
    path, version = client.path(rng.choice(PATHS)), rng.choice((-1, 0, 1, 2))
    match rng.randrange(6):
        case 0 | 1 | 2:
            ephemeral, sequential = rng.random() < 0.2, rng.random() < 0.1
            return request.create(path, rng.choice(DATA), ephemeral=ephemeral, sequential=sequential)
        case 3:
            return request.put(path, rng.choice(DATA[1:]) or b"", version)
        case 4:
            return request.delete(path, version)
        case _:
            return request.put(path, b"y")


async def read_tree(client: Client, path: str = "") -> dict[str, Any]:
    """Returns all nodes below a client's root."""
    found: dict[str, Any] = {}
    names, _ = await client.ask(client.children(path))
    for name in sorted(names):
        below = f"{path}/{name}"
        found[below] = plain_result(await client.ask(client.get(below)), client.chroot)
        found |= await read_tree(client, below)
    return found


@pytest.mark.parametrize("seed", range(4))
async def test_both_clients_have_equal_results_and_events(zookeeper: ZooKeeperServer, chroot: str, seed: int) -> None:
    listener, trees = [], []
    for kind in KINDS:
        rng = random.Random(seed)
        async with Diary(zookeeper.connect(f"{chroot}-{kind}"), kind) as diary:
            for root in TREES:  # as for any watcher of a tree
                await diary.watch(root)
            for _ in range(ROUNDS):
                await diary.ask(random_requests(rng, diary.client))
            listener.append(diary.listener)
            trees.append(await read_tree(diary.client))

    assert together(listener[0]) == together(listener[1])
    assert trees[0] == trees[1]
    events = [each[1:] for each in listener[0] if isinstance(each, tuple) and each[0] == "event"]
    assert {kind for kind, _, _ in events} == set(EVENTS)
    assert {told for _, _, told in events} == {"single", *TREES}
    assert len(listener[0]) > ROUNDS * GROUP_MAX / 3


def together(listener: list[Any]) -> list[Any]:
    """Groups the receivers of one event as a set: kazoo calls them in another order, and some of them twice."""
    found: list[Any] = []
    for each in listener:
        if not isinstance(each, tuple) or each[0] != "event":
            found.append(each)
        elif found and isinstance(found[-1], dict) and each[1:3] in found[-1]:
            found[-1][each[1:3]].add(each[3])
        else:
            found.append({each[1:3]: {each[3]}})
    return found
