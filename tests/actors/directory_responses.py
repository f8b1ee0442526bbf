"""Responses to LeaderAndIsr with the errors of directories."""

from kactl.decide.messages.control import LeaderAndIsr, LeaderAndIsrResponse
from kactl.decide.messages.events import LeaderAndIsrResponseReceived
from tests.support.control_requests import partition_errors
from tests.support.controller_harness import World


def directory_response(
    w: World, broker: int, errors: dict[str, int], *, error: int = 0, request: LeaderAndIsr | None = None
) -> LeaderAndIsrResponseReceived:
    """LeaderAndIsr response with the errors of some replicas' directories."""
    response = LeaderAndIsrResponse(error, partition_errors(errors))
    return LeaderAndIsrResponseReceived(broker, w.epoch(broker), response, request)
