"""The plug-in of pytest: the tutorial as a new user types it, the options, and suites for the parts of users."""

import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import tree
from tests.support.wheel import unpacked_wheel

TUTORIAL = tree.ROOT / "docs" / "simulation.md"
PLUGIN = "kactl.testing.pytest_plugin"


def run_pytest(folder: Path, *args: str, packages: Path = tree.ROOT) -> str:
    """Run pytest in a folder, as a process of its own, with kactl from another folder. Returns its output."""
    # The installation for development may be older than the entry point.
    plugins = ["-p", PLUGIN, "-p", "no:cacheprovider", "-p", "no:asyncio"]
    command = [sys.executable, "-m", "pytest", *plugins, "-W", "error", "-ra", *args]
    (folder / "pytest.ini").touch()
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=_environment(folder, packages)
    )
    return done.stdout + done.stderr


def _environment(folder: Path, packages: Path) -> dict[str, str]:
    return {"PYTHONPATH": f"{folder}:{packages}", "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}


def outcome(text: str) -> str:
    """Returns pytest's last line without the time."""
    return re.sub(r" in [\d.]+s.*", "", text.strip().splitlines()[-1]).strip("= ")


def tutorial_files() -> dict[str, str]:
    """Returns the files of the tutorial by name."""
    blocks = re.findall(r"```python\n# (\S+\.py)\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)
    return dict(blocks)


@pytest.mark.slow
def test_tutorial_finds_and_mends_the_bug(tmp_path: Path) -> None:
    files = tutorial_files()
    assert list(files) == ["jobs.py", "test_jobs.py"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (mended,) = re.findall(r"```python\n# jobs.py, in became_leader\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)

    found = run_pytest(tmp_path, "-x", "--sim-seeds", "2")

    assert outcome(found) == "1 failed, 2 passed"
    pattern = r"^seed 0, .* AssertionError at test_jobs\.py:\d+\n1 of \d+ faults are needed"
    assert re.search(pattern, found, re.MULTILINE), found
    assert re.search(r"^  1 of \d+ faults left after \d+ runs, \d+ s$", found, re.MULTILINE), found
    command = re.search(r"^repeat it: pytest (.*)$", found, re.MULTILINE)
    assert command, found

    repeated = run_pytest(tmp_path, "--sim-no-shrink", *shlex.split(command[1]))
    assert outcome(repeated) == "1 failed"
    assert "'jobs-" in repeated

    (tmp_path / ".sim" / "corpus").mkdir()
    (saved,) = (tmp_path / ".sim").glob("*.json")
    saved.rename(tmp_path / ".sim" / "corpus" / "became-leader-twice.json")
    listed = run_pytest(tmp_path, "--collect-only", "-q", "--sim-seeds", "1")
    assert "test_jobs_with_faults[became-leader-twice]" in listed
    assert "test_jobs_in_fair_weather[became-leader-twice]" not in listed

    line = mended.splitlines()[1]
    assert line in files["jobs.py"]
    (tmp_path / "jobs.py").write_text(files["jobs.py"].replace(f"{line}\n", mended))
    assert outcome(run_pytest(tmp_path, "--sim-seeds", "2")) == "5 passed"


def test_tutorial_lists_all_options_and_faults() -> None:
    faults = importlib.import_module("kactl.testing.programs").FAULTS
    text = TUTORIAL.read_text()
    source = (tree.ROOT / "kactl" / "testing" / "pytest_plugin.py").read_text()

    options = re.findall(r'addoption\("(--[\w-]+)"', source)

    assert len(options) == 6
    assert all(f"| `{option}" in text for option in options)
    assert all(f"`{fault}`" in text for fault in faults)


SLEEPER = """
import asyncio, pytest, time

@pytest.mark.sim(seeds=3, duration="1h")
async def test_time_passes(sim):
    began = time.process_time
    await sim.run_out()
    assert sim.loop.now_s == 3600
    sim.history.record("slept", seed=sim.seed)

@pytest.mark.sim(seeds=2)
async def test_clock(sim):
    time.time()
"""


@pytest.mark.slow
def test_options(tmp_path: Path) -> None:
    (tmp_path / "test_sleeper.py").write_text(SLEEPER)
    trace = tmp_path / "trace.txt"

    text = run_pytest(tmp_path, "--sim-seed", "7", "--sim-trace", str(trace), "-k", "time_passes")
    assert outcome(text) == "1 passed, 1 deselected"
    assert trace.read_text().splitlines()[1].split() == ["3600.000", "s", "-", "slept", "seed", "7"]

    text = run_pytest(tmp_path, "--sim-budget", "0s")
    assert outcome(text) == "5 skipped"
    assert "the budget of 0 s of processor time (--sim-budget) is used up" in text

    text = run_pytest(tmp_path)
    assert outcome(text) == "2 failed, 3 passed"
    assert "calls time.time: use loop.time()" in text
    assert "the cluster had not started: no faults" in text


BAD_MARKERS = """
import pytest

@pytest.mark.sim(faults=["rain"])
async def test_fault(sim):
    await sim.heal()

@pytest.mark.sim(duration="long")
async def test_duration(sim):
    await sim.heal()

@pytest.mark.sim
async def test_plain(sim):
    await sim.heal()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "reasons"),
    [
        (
            ["-k", "not plain"],
            [
                "unknown faults ['rain']: choose from ['controller-move', ",
                "'long' is not a duration: write 90s, 10min or 1h",
            ],
        ),
        (
            ["--sim-replay", "missing.json", "-k", "plain"],
            ["simulated run: [Errno 2] No such file or directory: 'missing.json'"],
        ),
        (["--sim-seeds", "0"], ["argument --sim-seeds: '0' is not a whole number of at least 1"]),
        (["--sim-seed", "x"], ["argument --sim-seed: 'x' is not a whole number of at least 0"]),
    ],
)
def test_bad_usage_names_the_remedy(tmp_path: Path, options: list[str], reasons: list[str]) -> None:
    (tmp_path / "test_it.py").write_text(BAD_MARKERS)

    text = run_pytest(tmp_path, *options)

    assert [reason for reason in reasons if reason not in text] == []


@pytest.mark.slow
def test_marker_without_a_run_is_an_error(tmp_path: Path) -> None:
    wrong = {
        "seeds=0": "seeds: 0 is not a whole number of at least 1",
        "seeds='20'": "seeds: '20' is not a whole number",
        "seed=3": "seed is not an argument: write seeds=, duration=, faults=",
        "200": "200 is not an argument: write seeds=",
        "": "the test is not asynchronous: write async def",
    }
    for number, marker in enumerate(wrong):
        function = "async def" if marker else "def"
        text = f"import pytest\n\n@pytest.mark.sim({marker})\n{function} test_it(sim):\n    pass\n"
        (tmp_path / f"test_{number}.py").write_text(text)

    text = run_pytest(tmp_path)

    assert [reason for reason in wrong.values() if f"::test_it: pytest.mark.sim: {reason}" not in text] == []


USERS_STORE = '''
"""A store, a transport and a handler of a user: the store counts its calls, the handler keeps what it leads."""

import kactl
import pytest

from kactl.stores.base import Session, Store
from kactl.stores.memory import MemoryState, MemoryStore
from kactl.participant.handlers.handler import PartitionHandler
from kactl.testing.contracts.network import NetworkContract
from kactl.testing.contracts.participants import ParticipantContract
from kactl.testing.contracts.store import StoreContract
from kactl.transports.memory import MemoryHub, MemoryTransport
from kactl.model import Broker


class CountingStore(MemoryStore):
    calls = 0

    async def topics(self) -> list[str]:
        self.calls += 1
        return await super().topics()


class Stores:
    def __init__(self):
        self.state = MemoryState()

    def open_client(self):
        return CountingStore(self.state)

    async def expire(self, client):
        client.expire()

    async def expire_session(self, session):
        await session.close()


class TestCountingStore(StoreContract):
    @pytest.fixture
    def stores(self):
        return Stores()

    @pytest.fixture
    def anyio_backend(self):
        return "asyncio"


class Handler:
    def __init__(self, respond):
        self.handle = respond


class TestTransport(NetworkContract):
    @pytest.fixture
    def anyio_backend(self):
        return "asyncio"

    @pytest.fixture
    def reached(self):
        async def reach(respond):
            hub = MemoryHub()
            hub.attach(1, Handler(respond))
            return MemoryTransport(hub, request_timeout_ms=200), Broker(1, 77)

        return reach


class KeepingHandler(PartitionHandler):
    led = set()

    async def lead(self, leader):
        self.led.add(leader.token)

    def lease_lost(self, leader):
        self.led.discard(leader.token)


class TestParticipants(ParticipantContract):
    @pytest.fixture
    def anyio_backend(self):
        return "asyncio"

    @pytest.fixture
    def network(self):
        return MemoryHub()

    @pytest.fixture
    def open_store(self):
        return Stores().open_client

    @pytest.fixture
    def make_handler(self):
        return KeepingHandler


def test_package_is_the_one_that_was_built():
    assert "/wheel/packages/" in kactl.__file__
'''


@pytest.mark.slow
def test_suites_of_the_wheel_judge_stores_and_transports_of_other_packages(tmp_path: Path) -> None:
    packages = unpacked_wheel(tmp_path / "wheel")
    (tmp_path / "test_users_parts.py").write_text(USERS_STORE)
    broken = USERS_STORE.replace("return await super().topics()", "return (await super().topics())[:1]")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "test_users_parts.py").write_text(broken)

    good = run_pytest(tmp_path, "test_users_parts.py", packages=packages)
    bad = run_pytest(tmp_path / "broken", "-k", "test_topics_are_reported or of_many_topics", packages=packages)

    assert re.fullmatch(r"[12]\d\d passed", outcome(good)), good
    assert outcome(bad).startswith("2 failed, "), bad
    assert "AssertionError: assert 1 == 2" in bad  # assertions of the suites show their values


def test_installed_package_brings_the_plug_in() -> None:
    plugins = tree.pyproject()["project"]["entry-points"]["pytest11"]

    assert plugins == {PLUGIN: PLUGIN}
    assert hasattr(importlib.import_module(PLUGIN), "pytest_pyfunc_call")
