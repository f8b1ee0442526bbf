"""State-change log of a server, read by the forensics pipeline."""

from pathlib import Path

import pytest

from kactl.forensics.event_types import Kind
from kactl.forensics.text import splits
from kactl.forensics.text.probe import probe
from kactl.forensics.text.zone import zone_of
from kactl.state_change_log.segments import NAME

from .server import QUICK, Up


@pytest.mark.parametrize(("form", "kind"), [("json", Kind.KACTL), ("kafka", Kind.STATE_CHANGE)])
def test_state_change_log_can_be_read_by_forensics(tmp_path: Path, form: str, kind: Kind) -> None:
    folder = tmp_path / "log"
    up = Up(tmp_path, env={**QUICK, "KACTL_LOG__FOLDER": str(folder), "KACTL_LOG__FORMAT": form})
    try:
        assert up("topic", "create", "orders", "--partitions", "20", "--replication-factor", "2").code == 0
        up.until(lambda: len(up.partitions("--topic", "orders")) == 20, "the topic has twenty partitions")
    finally:
        up.close()

    report = probe(str(folder / NAME))
    events = [row for split in splits.cut([(0, report)]) for batch in splits.events(split, zone_of("UTC"))
              for row in batch.to_pylist()]  # fmt: skip
    led = {row["partition"] for row in events if row["topic"] == "orders" and row["to_state"] == "OnlinePartition"}
    assert report.kind == kind
    assert led == set(range(20))
    assert {row["type"] for row in events} >= {"controller-elected", "partition", "replica"}
    assert not [row for row in events if row["type"] == "unparsed"]
