"""Order in which the workers of pytest-xdist run the tests, and which tests stay on one worker.

The slowest units run first: a run must not end with one of them on one worker while the others have nothing to do.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

# Units that share expensive fixtures: real brokers, or a Spark session, which takes ten seconds of processor time to
# start and more until Java has compiled what the jobs use. Tests of real brokers mostly wait for sessions to expire;
# in one unit they would end after all others. The acceptance tests have their own brokers.
FOLDERS: Final = ("tests/interop/acceptance/", "tests/interop/", "tests/forensics/")
# Files of these folders that share nothing with the others: each is a unit, as everywhere else.
ALONE: Final = (
    "tests/interop/test_secure_cluster.py",
    "tests/interop/test_compat.py",
    "tests/interop/test_first_use.py",
    "tests/interop/old_brokers/test_versions.py",
    "tests/interop/old_brokers/test_mixed.py",
)
# Files with independent tests that take long: each test is a unit.
SPLIT: Final = ("tests/sim/test_corpus.py",)
# Files and folders that take longest, with waiting, the slowest first. Their number of tests does not show it.
SLOWEST: Final = (
    "tests/interop/acceptance/",
    "tests/interop/old_brokers/",
    "tests/interop/",
    "tests/forensics/",
    "tests/interop/test_secure_cluster.py",
    "tests/interop/test_compat.py",
    "tests/interop/test_first_use.py",
    "tests/test_walkthrough.py",
    "tests/contracts/test_participants.py",
    "tests/contracts/test_participants_servers.py",
    "tests/testing/test_pytest_plugin.py",
    "tests/transports/tcp/test_process_stories.py",
    "tests/participant/leases/test_watchdog.py",
    "tests/transports/tcp/test_processes.py",
    "tests/environment/",
    "tests/website/",
    "tests/dashboard/",
    "tests/examples/",
    "tests/bench/test_race.py",
    "tests/stores/zookeeper/test_outages.py",
    "tests/stores/zookeeper/connection/test_loss.py",
    "tests/stores/test_sqlite_kill.py",
    "tests/test_packaging.py",
    "tests/cli/",
    "tests/sim/",
    "tests/sim/test_engine/brokers/test_participant.py",
    "tests/bench/test_smoke.py",
    "tests/test_oracle.py",
    "tests/transports/kafka/listener/test_attack.py",
    "tests/admin/test_connections.py",
    "tests/transports/kafka/listener/test_logins.py",
    "tests/admin/test_fuzz.py",
    "tests/sim/test_engine/test_sim_commands.py",
    "tests/participant/spectator/test_failover.py",
    "tests/actors/machines/test_chunked.py",
    "tests/actors/test_remote_sessions.py",
    "tests/stores/test_sqlite_clock_steps.py",
    "tests/telemetry/",
    "tests/transports/tcp/",
    "tests/fuzz/",
)


def unit_of(node_id: str) -> str:
    """Returns the name of the unit that a test belongs to; a unit runs on one worker, in its order."""
    path = node_id.partition("::")[0]
    if path in SPLIT:
        return node_id
    if path in ALONE:
        return path
    return next((folder for folder in FOLDERS if path.startswith(folder)), path)


def slowest_first(node_ids: Iterable[str]) -> dict[str, int]:
    """Returns the position of each unit: first those of SLOWEST, then by the number of their tests.

    The order of the tests has no influence: workers collect them in different orders.
    """
    sizes = Counter(map(unit_of, node_ids))
    units = sorted(sizes, key=lambda unit: (_rank(unit), -sizes[unit], unit))
    return {unit: position for position, unit in enumerate(units)}


def _rank(unit: str) -> int:
    if unit in SLOWEST:
        return SLOWEST.index(unit)
    return next((rank for rank, prefix in enumerate(SLOWEST) if unit.startswith(prefix)), len(SLOWEST))


def collection_order(folder: Path, worker: int, workers: int) -> list[str]:
    """Returns the files and folders of the tests in the order in which one worker collects them.

    Each worker begins with another one. After a change, or in a new tree, all of them would otherwise compile the same
    modules at the same time; this way each finds most of them compiled by the others.
    """
    paths = sorted(str(path) for path in folder.iterdir() if path.match("test_*.py") or (path / "__init__.py").exists())
    begin = len(paths) * worker // workers
    return paths[begin:] + paths[:begin]
