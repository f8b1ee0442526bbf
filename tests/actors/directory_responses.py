"""Responses to LeaderAndIsr with the errors of directories."""

import numpy as np

from kactl.messages.control import LeaderAndIsrResponse, PartitionErrors
from kactl.messages.events import LeaderAndIsrAnswered
from kactl.model import TopicPartition
from tests.support.controller_harness import World


def directory_response(w: World, broker: int, errors: dict[str, int], *, error: int = 0) -> LeaderAndIsrAnswered:
    """LeaderAndIsr response with the errors of some replicas' directories."""
    names = [TopicPartition.parse(name) for name in errors]
    topics = tuple(dict.fromkeys(name.topic for name in names))
    said = PartitionErrors(
        topics,
        np.array([topics.index(name.topic) for name in names], np.int32),
        np.array([name.partition for name in names], np.int32),
        np.array(list(errors.values()), np.int16),
    )
    return LeaderAndIsrAnswered(broker, w.epoch(broker), LeaderAndIsrResponse(error, said))
