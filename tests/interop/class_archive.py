"""Archive of the classes that ZooKeeper and a broker load, in the format of Java's class-data sharing.

A broker spends more than half of the processor time of its start on loading and verifying classes; with the archive it
takes 1.4 instead of 3.4 s. The archive is built once per folder of jars, from one start of each server. Java ignores an
archive of another Java or of other jars.
"""

import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.support import jars
from tests.support.processes import HarnessError
from tests.support.zookeeper_server import ZooKeeperServer

from .brokers import KafkaBroker

# Takes seconds; beside thirty busy processes it took more than two minutes.
DUMP_S: Final = 600.0


def build() -> None:
    """Build the archive unless it exists. Without one the servers start as well, but more slowly.

    Raises:
        HarnessError: a server did not start, or Java did not write the archive.
    """
    archive = jars.class_archive()
    with jars.locked(jars.FOLDER / "lock"):
        if not archive.exists():
            with tempfile.TemporaryDirectory(prefix="kactl-classes-") as folder:
                _dump(_loaded_classes(Path(folder)), archive)


def _loaded_classes(folder: Path) -> Path:
    """Start and stop both servers. Returns a file with the names of their classes."""
    lists = [folder / "zookeeper.classes", folder / "broker.classes"]
    of_zookeeper, of_broker = ([f"-XX:DumpLoadedClassList={path}"] for path in lists)
    with ZooKeeperServer(folder / "zookeeper", java_options=of_zookeeper) as zookeeper:
        broker = KafkaBroker(1, folder=folder / "broker", zookeeper=zookeeper.connect("/classes"))
        broker.java_options = of_broker
        with broker:
            broker.stop()
        zookeeper.stop()
    both = folder / "all.classes"
    names = dict.fromkeys(name for path in lists for name in path.read_text().splitlines() if not name.startswith("#"))
    both.write_text("".join(f"{name}\n" for name in names))
    return both


def _dump(names: Path, archive: Path) -> None:
    draft = archive.with_suffix(".new")
    options = ["-Xshare:dump", f"-XX:SharedClassListFile={names}", f"-XX:SharedArchiveFile={draft}"]
    # Without a class to run; the collector and the class path must be those of the servers.
    command = [jars.java_program() or "java", "-XX:+UseSerialGC", *options, "-cp", jars.class_path()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DUMP_S, check=False)
    if done.returncode != 0:
        raise HarnessError(f"java could not write {archive}: {done.stdout}{done.stderr}")
    draft.replace(archive)
