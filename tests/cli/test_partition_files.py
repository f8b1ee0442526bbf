"""Files of partitions that cannot be used."""

from pathlib import Path

import pytest

from kactl.cli.exits import Exit, Failure
from kactl.cli.partition_files import NamesFile, Targets, TopicsFile, decoded, read


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "plan.json: is empty; `kactl reassign plan --out` writes"),
        (b" \n", "plan.json: is empty"),
        (b'{"version": 2, "partitions": []}', "plan.json: version 2 is unknown; `kactl reassign plan --out` writes"),
        (b"[1", "plan.json: "),
        (b"\xff\xfe", "plan.json: "),
        (b'{"partitions": [{"topic": "a", "partition": "0", "replicas": []}]}', "`$.partitions[0].partition`"),
    ],
)
def test_file_in_another_format_is_an_error_of_usage(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "plan.json"
    file.write_bytes(content)

    with pytest.raises(Failure) as refused:
        read(str(file), Targets)

    assert refused.value.code == Exit.USAGE
    assert reason in refused.value.message


def test_version_may_be_missing_and_fields_of_other_tools_are_ignored() -> None:
    partition = b'{"topic": "a", "partition": 0, "replicas": [1], "log_dirs": ["any"], "x": 1}'

    assert decoded("f", b'{"partitions": [%s], "x": 1}' % partition, Targets).partitions[0].replicas == [1]
    assert decoded("f", b'{"partitions": [%s]}' % partition, NamesFile).partitions[0].topic == "a"
    assert decoded("f", b'{"version": 1, "topics": [{"topic": "a"}]}', TopicsFile).topics[0].topic == "a"
