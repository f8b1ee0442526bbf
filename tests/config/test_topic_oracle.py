"""Every setting of topics, value by value: kactl accepts what Kafka's own definitions accept, and nothing else."""

import itertools
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from kactl.config.topic import LEASE, SETTINGS, Rules, check_overrides
from kactl.model.errors import BadConfig
from tests.support.jars import java_command
from tests.support.zookeeper_fixtures import jars

__all__ = ["jars"]

pytestmark = [pytest.mark.java, pytest.mark.slow]

SOURCE: Final = Path(__file__).with_name("TopicOracle.java")
RUN_S: Final = 240.0
BOUNDS: Final = (0, 1, 4, 9, 14, 17, 22, -1, -2, -131_072, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
VALUES: Final = (
    *dict.fromkeys(str(bound + step) for bound in BOUNDS for step in (-1, 0, 1)),
    "", " ", " 1 ", "+1", "--1", "1_000", "007", "0" * 40 + "5", "9" * 5000, "1e3", "1.5", "-0", "+", "-", "null",
    "\u0661", "\uff11", "\U0001d7cf", "\u00b2", "\u200b1", "\u20031", "\u00a01", "\x021",
    "0.5", "1.0", "1.0001", "-0.1", "1e-3", "1e-400", ".5", "0.", ".", "nan", "NaN", "+NaN", "NaNf", "Infinity",
    "0x1p-1", "0x1p1024", "-0x1p1024", "0x0p1024", "0x1p-1100", "0x.8p0", "0x1", "0.5f", "0.5d", "1d",
    "true", "TRUE", "True ", " false", "yes",
    "compact", "delete", "compact,delete", " compact ,delete ", "compact,", "compact,,delete", ",", "compact,compact",
    "compact\t,\tdelete", "compact\u2003,delete",
    "gzip", "GZIP", "gzip ", "zstd", "lz4", "snappy", "producer", "uncompressed", "none",
    "CreateTime", "LogAppendTime", "createtime",
    "0:1", "1:x", "*", " * ", "**", "*,", "*,0:1", "0:*", "0:1,2:3", "0:1, 2:3", "0:1,", "0:1:2", ":", "\u0663:1",
    "0.8", "0.8.0", "0.8.2.1", "0.10", "0.10.0", "0.10.1-IV2", "0.10.1-IV3", "0.11.0-IV2.3", "1.0", "1.0.0", "1.2",
    "2.0-IV9", "2.6", "2.6-IV0.1", "2.8.1", "3.0-IV1", "3.9", "3.9.1", "3.9.foo", "3.9-foo", "3.", "3", "4.0",
    "4.0-IV0", "4.0-IV1", "4.0-IV2", "5.0", "banana", "\u20ac",
)  # fmt: skip
TOGETHER: Final = [
    dict(zip(pairs[::2], pairs[1::2], strict=True))
    for pairs in (
        ("min.compaction.lag.ms", "10", "max.compaction.lag.ms", "9"),
        ("min.compaction.lag.ms", "10", "max.compaction.lag.ms", "10"),
        ("segment.jitter.ms", "9", "segment.ms", "1"),
        ("local.retention.ms", "9", "retention.ms", "1"),
        ("retention.ms", "9", "retention.bytes", "x"),
        ("compression.type", "gzip", "compression.gzip.level", "0"),
        ("unclean.leader.election.enable", "true", "unclean.leader.election.enabled", "true"),
        ("message.timestamp.difference.max.ms", "5", "message.timestamp.before.max.ms", "6"),
    )
] + [
    {"remote.storage.enable": "true", f"local.retention.{unit}": local} | total | policy
    for unit, local in itertools.product(("ms", "bytes"), ("-2", "-1", "0", "5", "604800001"))
    for total in ({}, {f"retention.{unit}": "-1"}, {f"retention.{unit}": "4"})
    for policy in ({}, {"cleanup.policy": "compact,delete"}, {"cleanup.policy": ""})
]
NAMES: Final = (*SETTINGS.keys() - {LEASE}, LEASE, "what.kafka.does.not.know", "Retention.ms", "retention.ms ", "")


def kafkas(cases: Sequence[Mapping[str, str]], jars: str, *, remote: bool) -> list[str]:
    """Returns the answers of Kafka's controller."""
    lines = "".join("\x01".join(itertools.chain(*case.items())) + "\n" for case in cases)
    command = java_command(str(SOURCE), [str(remote).lower()], heap_mb=256, jars=jars)
    ran = subprocess.run(command, input=lines.encode(), capture_output=True, timeout=RUN_S, check=True)
    # The log is on the same stream.
    return [line[2:] for line in ran.stdout.decode().split("\n") if line.startswith("= ")]


def kactls(case: Mapping[str, str], *, remote: bool) -> str:
    try:
        check_overrides(case, Rules(has_remote_storage=remote))
    except BadConfig as rejected:
        return str(rejected)
    return "valid"


@pytest.mark.parametrize("remote", [False, True], ids=["without remote storage", "with remote storage"])
def test_overrides_are_accepted_exactly_if_kafka_accepts_them(jars: str, remote: bool) -> None:
    cases = [{name: value} for name in NAMES for value in VALUES] + TOGETHER

    answers = kafkas(cases, jars, remote=remote)

    differing = [
        (case, ours, theirs)
        for case, theirs in zip(cases, answers, strict=True)
        if ((ours := kactls(case, remote=remote)) == "valid") != (theirs == "valid")
    ]
    assert differing == []
