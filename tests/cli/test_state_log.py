"""State-change log of a server, read by the forensics pipeline."""

import datetime
import time
from pathlib import Path

import pytest

from kactl.admin.schema import PartitionInfo
from kactl.decide.messages.log import ElectionEvent, decode
from kactl.forensics.event_types import Kind
from kactl.forensics.text import splits
from kactl.forensics.text.probe import probe
from kactl.forensics.text.zone import zone_of
from kactl.telemetry.state_change_log import snapshots
from kactl.telemetry.state_change_log.segments import NAME

from .server import QUICK, Up


@pytest.mark.slow
@pytest.mark.parametrize(("form", "kind"), [("json", Kind.KACTL), ("kafka", Kind.STATE_CHANGE)])
def test_state_change_log_can_be_read_by_forensics(tmp_path: Path, form: str, kind: Kind) -> None:
    folder = tmp_path / "log"
    up = Up(tmp_path, env={**QUICK, "KACTL_LOG__FOLDER": str(folder), "KACTL_LOG__FORMAT": form})
    try:
        assert up("topic", "create", "orders", "--partitions", "20", "--replication-factor", "2").code == 0
        up.until(lambda: len(up.partitions("--topic", "orders")) == 20, "the topic has twenty partitions")
    finally:
        up.close()

    if form == "json":
        _check_elections(folder)
    report = probe(str(folder / NAME))
    events = [row for split in splits.cut([(0, report)]) for batch in splits.events(split, zone_of("UTC"))
              for row in batch.to_pylist()]  # fmt: skip
    led = {row["partition"] for row in events if row["topic"] == "orders" and row["to_state"] == "OnlinePartition"}
    assert report.kind == kind
    assert led == set(range(20))
    assert {row["type"] for row in events} >= {"controller-elected", "partition", "replica"}
    assert not [row for row in events if row["type"] == "unparsed"]


def _check_elections(folder: Path) -> None:
    """Elections are written with their causes, and snapshots beside the log."""
    events = [decode(line) for line in (folder / NAME).read_bytes().splitlines()]
    elections = [event for event in events if isinstance(event, ElectionEvent)]
    assert sum(election.moved for election in elections) == 20
    assert len(list(snapshots.paths(folder))) == 1


def test_partitions_can_be_read_as_of_an_earlier_time(tmp_path: Path) -> None:
    up = Up(tmp_path, env={**QUICK, "KACTL_LOG__FOLDER": str(tmp_path / "log")})
    try:
        up("topic", "create", "orders", "--replication-factor", "1")
        up.until(lambda: len(up.partitions("--topic", "orders")) == 1, "the topic has a partition")
        time.sleep(0.01)
        before = datetime.datetime.now().isoformat()
        up("topic", "create", "bills", "--replication-factor", "1")
        up.until(lambda: len(up.partitions("--topic", "bills")) == 1, "the topic has a partition")

        earlier = up("get", "partitions", "--at", before, "-o", "json").json(list[PartitionInfo])
        too_early = up("get", "partitions", "--at", "2001-01-01T00:00:00Z")
        malformed = up("get", "partitions", "--at", "yesterday")
    finally:
        up.close()

    assert {info.topic for info in earlier} == {"orders"}
    assert too_early.code == 1
    assert "at: 2001-01-01T00:00:00.000Z: the log has no state of that time; it covers 20" in too_early.err
    assert malformed.code == 1
    assert "at: 'yesterday' is not a time" in malformed.err
