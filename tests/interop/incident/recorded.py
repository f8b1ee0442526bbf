"""Recorded incident: the logs of the brokers and the clients' measurement in one file.

Record one with:

    python -m tests.interop.incident.recorded zookeeper INFO tests/forensics/truth/recorded/zookeeper-info.tar.gz

Only file-system paths are replaced, and lines about the machine are left out.
"""

import io
import json
import re
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.support.jars import class_path_4

from . import hard_day
from .facts import Facts, Kill, Pause, Planned
from .prober import Gap

CLIENTS: Final = "clients.json"
LOGS: Final = ("server.log", "controller.log", "state-change.log")
ZONES: Final = {"INFO": "UTC", "TRACE": "Asia/Kolkata"}
_ENVIRONMENT: Final = re.compile(rb"^.*(?:Client|Server) environment:.*\n", re.MULTILINE)
_LISTS: Final = {"kills": Kill, "pauses": Pause, "planned": Planned, "gaps": Gap}


def keep(facts: Facts, file: Path, *places: Path) -> None:
    """Write logs and measurement. `places` are replaced wherever they occur in the logs."""
    seen: dict[str, Any] = {"zone": facts.zone, "partitions": facts.partitions}
    for field in _LISTS:
        seen[field] = [item._asdict() for item in getattr(facts, field)]
    for kill in seen["kills"]:
        kill["ends"] = {}
    with tarfile.open(file, "w:gz") as archive:
        _add(archive, CLIENTS, json.dumps(seen, indent=1).encode())
        for path in sorted(facts.logs.rglob("*.log*")):
            if path.name.startswith(LOGS) and path.stat().st_size:
                text = _ENVIRONMENT.sub(b"", path.read_bytes())
                for place in places:
                    text = text.replace(str(place).encode(), b"/kafka")
                _add(archive, str(path.relative_to(facts.logs.parent)), text)


def opened(file: Path, folder: Path) -> Facts:
    """Return what `keep` has written, with the logs in `folder`; without records."""
    with tarfile.open(file) as archive:
        archive.extractall(folder, filter="data")
    seen = json.loads((folder / CLIENTS).read_text())
    lists: dict[str, Any] = {field: [_made(kind, item) for item in seen[field]] for field, kind in _LISTS.items()}
    return Facts(
        logs=folder / "logs",
        zone=seen["zone"],
        partitions=seen["partitions"],
        cuts=[],
        begins={},
        lost=[],
        unclean={},
        committed={},
        acknowledged=0,
        refused=[],
        **lists,
    )


def _made(kind: Any, row: dict[str, Any]) -> Any:
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in row.items()})


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def _main(kind: str, level: str, file: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if kind == "zookeeper":
            facts = hard_day.with_zookeeper(folder, state_change=level, zone=ZONES[level])
        else:
            jars = class_path_4()
            facts = hard_day.without_zookeeper(folder, jars=jars, state_change=level, zone=ZONES[level])
        keep(facts, Path(file), folder, Path.cwd())


if __name__ == "__main__":
    _main(*sys.argv[1:])
