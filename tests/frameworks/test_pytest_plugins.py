"""A cluster as a fixture: under pytest-asyncio, and under the plug-in of anyio."""

import subprocess
import sys
from pathlib import Path

import pytest

PATIENCE_S = 240
TESTS = """
from collections.abc import AsyncIterator
import anyio, pytest, pytest_asyncio
import kactl

class Shard(kactl.PartitionHandler):
    async def lead(self, leader):
        await anyio.sleep_forever()

async def running():
    async with (
        kactl.Controller(0) as controller,
        kactl.Participant(1, store=controller.store, hub=controller.hub, handler=Shard),
    ):
        yield controller

async def started():
    controller = kactl.Controller(0)
    await controller.start()
    participant = kactl.Participant(1, network=controller.hub, handler=Shard)
    await participant.start()
    yield controller
    await participant.aclose()
    await controller.aclose()

@pytest.fixture(scope="session")
def anyio_backend():
    return "asyncio"

@pytest_asyncio.fixture
async def block():
    async for controller in running():
        yield controller

@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def whole():
    async for controller in running():
        yield controller

without = pytest_asyncio.fixture(started, name="without")
block_of_anyio = pytest.fixture(running, name="block_of_anyio")
whole_of_anyio = pytest.fixture(running, name="whole_of_anyio", scope="session")

async def check(controller, topic):
    await controller.ensure_topic(topic, partitions=2, replication_factor=1, wait="led")
    assert [view.leader for view in controller.partitions_of(topic)] == [1, 1]

@pytest.mark.asyncio
async def test_block(block):
    await check(block, "a")

@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("topic", ["b", "c"])
async def test_session(whole, topic):
    await check(whole, topic)

@pytest.mark.asyncio
async def test_without(without):
    await check(without, "d")

@pytest.mark.anyio
@pytest.mark.parametrize("topic", ["e", "f"])
async def test_anyio(block_of_anyio, whole_of_anyio, topic):
    await check(block_of_anyio, topic)
    await check(whole_of_anyio, topic)
"""
TRIO = """
import pytest
import kactl

@pytest.fixture(params=["trio"])
def anyio_backend(request):
    return request.param

@pytest.mark.anyio
async def test_trio():
    async with kactl.Controller(0):
        pass
"""


def ran(folder: Path, text: str) -> "subprocess.CompletedProcess[str]":
    folder.joinpath("test_program.py").write_text(text)
    folder.joinpath("pytest.ini").write_text(
        "[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_program.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.slow
def test_cluster_is_a_fixture_of_each_plugin_and_scope(tmp_path: Path) -> None:
    done = ran(tmp_path, TESTS)

    assert "6 passed" in done.stdout, done.stdout
    assert "warning" not in done.stdout


@pytest.mark.slow
def test_trio_is_refused_with_the_fixture_that_helps(tmp_path: Path) -> None:
    done = ran(tmp_path, TRIO)

    assert "define a fixture anyio_backend that returns 'asyncio'" in done.stdout, done.stdout
