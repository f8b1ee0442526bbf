"""The controllership of this instance: to give it up."""

import logging

from kactl.admin.route import Asked
from kactl.admin.schema import NoQuestion, Resignation, Resigned
from kactl.admin.service import Service
from kactl.errors import NotController

log = logging.getLogger(__name__)


async def resign(service: Service, asked: Asked[NoQuestion, NoQuestion, Resignation]) -> Resigned:
    """Give it up, if it is ours under the epoch that was named."""
    controller = service.controller
    if not controller.is_active:
        raise NotController(controller.loop.active_id)
    epoch = asked.body.expected_epoch
    log.warning("epoch %d is given up, as asked over the API: %s", epoch, asked.body.reason or "no reason")
    await controller.resign(expected_epoch=epoch)
    return Resigned(epoch=epoch, active_id=controller.loop.active_id)
