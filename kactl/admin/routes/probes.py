"""Does it live, is it ready, is it the controller: for those who watch over processes and balance load."""

from http import HTTPStatus

from kactl.admin.route import Asked, Reply
from kactl.admin.schema import ControllerInfo, NoQuestion, Probe
from kactl.admin.service import Service, version

Nothing = Asked[NoQuestion, NoQuestion, NoQuestion]


async def livez(service: Service, asked: Nothing) -> Probe:
    """That this is answered is the answer."""
    return Probe(status="ok")


async def readyz(service: Service, asked: Nothing) -> Probe | Reply:
    """Ready is an instance with a store that works that has taken over, or stands by for a controller that is known."""
    loop = service.controller.loop
    if trouble := service.controller.store.trouble:
        return _not_ready("failing", f"the store cannot be used: {trouble}")
    if service.controller.is_active:
        if loop.controllership.ready:
            return Probe(status="ok", detail="this instance is the controller")
        return _not_ready("starting", "this instance has just been elected and is still loading the cluster")
    if loop.active_id is None:
        return _not_ready("starting", "nobody is known to be the controller")
    return Probe(status="ok", detail=f"standing by for controller {loop.active_id}")


async def leader(service: Service, asked: Nothing) -> Reply:
    """200 on the controller, 503 on everyone else."""
    status = HTTPStatus.OK if service.controller.is_active else HTTPStatus.SERVICE_UNAVAILABLE
    return Reply(controller_info(service), status=status)


async def controller(service: Service, asked: Nothing) -> ControllerInfo:
    """This instance, whatever it is."""
    return controller_info(service)


def controller_info(service: Service) -> ControllerInfo:
    """This instance, and who is the controller."""
    controller = service.controller
    loop = controller.loop
    return ControllerInfo(
        node_id=controller.node_id,
        cluster=service.config.cluster,
        version=version(),
        is_active=controller.is_active,
        ready=controller.is_active and loop.controllership.ready,
        active_id=loop.active_id,
        epoch=controller.cluster.fence.epoch,
        since_ms=service.since_ms(),
        state=loop.state.label,
        state_number=loop.state.value,
        changes=loop.controllership.elections_won,
        queue_size=len(loop.inbox),
        participants=service.participants.ids if service.participants is not None else (),
        as_of=service.as_of(),
    )


def _not_ready(status: str, detail: str) -> Reply:
    return Reply(Probe(status=status, detail=detail), status=HTTPStatus.SERVICE_UNAVAILABLE)
