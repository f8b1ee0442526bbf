"""Responses to LeaderAndIsr with the errors of directories."""

from kactl.decide.messages.control import LeaderAndIsr, LeaderAndIsrResponse
from kactl.decide.messages.events import LeaderAndIsrAnswered
from tests.support.control_requests import partition_errors
from tests.support.controller_harness import World


def directory_response(
    w: World, broker: int, errors: dict[str, int], *, error: int = 0, request: LeaderAndIsr | None = None
) -> LeaderAndIsrAnswered:
    """LeaderAndIsr response with the errors of some replicas' directories."""
    return LeaderAndIsrAnswered(broker, w.epoch(broker), LeaderAndIsrResponse(error, partition_errors(errors)), request)
