"""Recorded logs of real brokers and controllers, at INFO and TRACE: no line is unknown."""

import datetime
from collections import Counter
from pathlib import Path

import pytest

from kactl.forensics.event_types import EventType
from kactl.forensics.text import probe, splits
from tests.interop.incident import recorded

RECORDED = sorted((Path(__file__).parent / "truth" / "recorded").glob("*.tar.gz"))


@pytest.mark.parametrize("packed", RECORDED, ids=[path.name.partition(".")[0] for path in RECORDED])
def test_recorded_lines_of_controllers_are_known(packed: Path, tmp_path: Path) -> None:
    logs = recorded.opened(packed, tmp_path).logs
    files = [str(path) for path in sorted(logs.rglob("*")) if path.is_file()]
    types, unknown = Counter[str](), []

    for split in splits.cut(enumerate(map(probe.probe, files))):
        for batch in splits.events(split, datetime.UTC):
            types.update(batch.column("type").to_pylist())
            rows = zip(batch.column("type").to_pylist(), batch.column("text").to_pylist(), strict=True)
            unknown += [text for type_, text in rows if type_ == EventType.UNPARSED]

    assert unknown == []
    assert types[EventType.CONTROLLER_ELECTED] > 0
    assert types[EventType.LEADS] > 0
