"""Leaders of one partition under random pauses: at no moment do two of them have a valid leadership.

The whole cluster runs in one process: a controller, three participants with handlers, and the store in memory. Pauses
are those of a stopped process, of lengths around the session timeout. Nothing moves leaderships besides failures.
"""

import random
from typing import Final

import pytest

from kactl.participant.participant import SESSION_TIMEOUT_MS
from tests.actors.test_partition_reports import Cluster, open_cluster

pytestmark = pytest.mark.anyio

STEP_MS: Final = 300
STEPS: Final = 400


def pause_or_resume(cluster: Cluster, rng: random.Random, until: dict[int, float]) -> None:
    """Resume what has been paused for long enough, and sometimes pause the leader or another broker."""
    now = cluster.clock.monotonic_ms()
    for broker in [broker for broker, end in until.items() if now >= end]:
        cluster.brokers[broker].resume()
        del until[broker]
    if not until and rng.random() < 0.05:
        broker = cluster.leader if rng.random() < 0.8 and cluster.leader in cluster.brokers else rng.choice((1, 2, 3))
        cluster.brokers[broker].pause()
        until[broker] = now + SESSION_TIMEOUT_MS * rng.uniform(0.6, 1.3)


@pytest.mark.parametrize("seed", range(4))
async def test_valid_leaderships_of_one_partition_are_disjoint(seed: int) -> None:
    rng, until = random.Random(seed), dict[int, float]()
    leaders: list[tuple[int, str]] = []
    async with open_cluster() as cluster:
        await cluster.controller.create_topic("t", assignment={0: (1, 2, 3)})
        for _ in range(STEPS):
            pause_or_resume(cluster, rng, until)
            await cluster.clock.advance(STEP_MS)
            assert len(cluster.valid) <= 1, f"seed {seed}: {cluster.leading}"
            for broker in cluster.valid:
                leader = broker, str(cluster.leading[broker].token)
                if leaders[-1:] != [leader]:
                    leaders.append(leader)

    tokens = [tuple(int(epoch) for epoch in token.split(".")) for _, token in leaders]
    assert tokens == sorted(tokens)
    assert len({broker for broker, _ in leaders}) > 1  # leaderships have moved
