"""Changes of rows, and refusals."""

import numpy as np
import pytest

from kactl.decide.state.change import REFUSAL_TEXT, Change, Refusal
from tests.support.cluster_seeds import ClusterSeed, PartitionSeed, led, rows_of, tp


@pytest.mark.parametrize("refusal", Refusal)
def test_every_refusal_has_a_text(refusal: Refusal) -> None:
    assert bool(REFUSAL_TEXT[refusal]) == (refusal is not Refusal.NONE)


def test_part_of_a_change_has_the_values_of_its_rows() -> None:
    seeds = {
        tp(f"t-{number}"): PartitionSeed(replicas=(1, 2), leadership=led(1, number, (1, 2), number))
        for number in range(4)
    }
    rows = rows_of(ClusterSeed(partitions=seeds).columns())
    writes = np.array([True, False, True, True])
    change = Change.of(rows, leader=np.array([5, 6, 7, 8], np.int32), writes=writes)

    part = change.take(np.array([False, True, True, False]))

    assert part.rows.partition.tolist() == [1, 2]
    assert part.leader.tolist() == [6, 7]
    assert part.writes.tolist() == [False, True]
    assert part.leader_epoch is part.rows.leader_epoch  # unchanged columns are shared
    assert part.after().leader.tolist() == [6, 7]
    assert part.after().leader_epoch.tolist() == [1, 2]
    assert part.committed(np.array([90, 91], np.int32)).partition_epoch.tolist() == [1, 91]
    assert len(change.take(np.zeros(4, np.bool_))) == 0
