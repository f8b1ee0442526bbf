"""Generated logs describe a possible cluster and agree with its known history."""

from pathlib import Path

import pytest

from tests.support.kafka_logs.cluster import Log, agreement
from tests.support.kafka_logs.generate import generate
from tests.support.kafka_logs.simulation import Settings
from tests.support.kafka_logs.truth import read

KINDS = ("zookeeper", "kraft", "kactl")


def log(end: int, *epochs: tuple[int, int]) -> Log:
    generated = Log()
    generated.end, generated.epochs = end, list(epochs)
    return generated


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (log(0), log(9, (1, 0)), 0),
        (log(5, (1, 0)), log(9, (1, 0)), 5),
        # The second replica was elected with five records and has appended others since.
        (log(8, (1, 0)), log(9, (1, 0), (2, 5)), 5),
        (log(8, (1, 0), (2, 5)), log(9, (1, 0), (2, 5), (3, 6)), 6),
        (log(8, (1, 0), (2, 4)), log(9, (1, 0), (3, 6)), 4),
        (log(8, (2, 0)), log(9, (3, 0)), 0),
    ],
)
def test_logs_agree_up_to_the_end_of_common_epochs(one: Log, other: Log, same: int) -> None:
    assert agreement(one, other) == agreement(other, one) == same


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_logs_and_truth(kind: str, tmp_path: Path) -> None:
    settings = Settings(seed=7, kind=kind, partitions=20)  # type: ignore[arg-type]

    truths = [generate(settings, tmp_path / name) for name in ("one", "two")]

    files = [
        sorted(path.relative_to(tmp_path / name) for path in (tmp_path / name).rglob("*.log*"))
        for name in ("one", "two")
    ]
    assert files[0] == files[1]
    for file in files[0]:
        one, two = ((tmp_path / name / file).read_bytes() for name in ("one", "two"))
        assert file.suffix == ".gz" or one == two
    assert truths[0] == truths[1] == read(tmp_path / "one")


@pytest.mark.parametrize("kind", KINDS)
def test_generated_failures_are_many_and_possible(kind: str, tmp_path: Path) -> None:
    truth = generate(Settings(seed=8, kind=kind), tmp_path)  # type: ignore[arg-type]

    assert any(outage.planned for outage in truth.outages)
    assert any(not outage.planned for outage in truth.outages)
    assert all(outage.end is None or outage.begin <= outage.end for outage in truth.outages)
    assert all(loss.tail > 0 and 0 <= loss.committed <= loss.tail for loss in truth.losses)
    assert truth.unclean
    # Only a leader elected outside the ISR makes others lose committed records.
    lost = {(loss.topic, loss.partition) for loss in truth.losses if loss.committed}
    assert lost <= {(election.topic, election.partition) for election in truth.unclean}
    assert all(done is not None for _, _, done in truth.deletions)
    assert all(back is not None and back > died for _, died, back, _ in truth.absences)
    assert len({term.epoch for term in truth.controllers}) == len(truth.controllers) > 1
