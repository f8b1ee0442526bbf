"""Probes for process supervisors and load balancers: liveness, readiness, leadership."""

from http import HTTPStatus

from kactl.admin.route import ApiRequest, Reply
from kactl.admin.schema import ControllerInfo, NoData, Probe
from kactl.admin.service import Service, version

Nothing = ApiRequest[NoData, NoData, NoData]


async def livez(service: Service, request: Nothing) -> Probe:
    """Succeeds whenever the server can respond."""
    return Probe(status="ok")


async def readyz(service: Service, request: Nothing) -> Probe | Reply:
    """Ready: the store works, and this instance has completed its takeover or is a standby of a known controller."""
    loop = service.controller.loop
    if trouble := service.controller.store.trouble:
        return _not_ready("failing", f"the store cannot be used: {trouble}")
    if service.controller.is_active:
        if loop.controllership.ready:
            return Probe(status="ok", detail="this instance is the controller")
        return _not_ready("starting", "this instance has just been elected and is still loading the cluster")
    if loop.active_id is None:
        return _not_ready("starting", "no controller is known")
    return Probe(status="ok", detail=f"standing by for controller {loop.active_id}")


async def leader(service: Service, request: Nothing) -> Reply:
    """200 on the controller, 503 on every other instance."""
    status = HTTPStatus.OK if service.controller.is_active else HTTPStatus.SERVICE_UNAVAILABLE
    return Reply(controller_info(service), status=status)


async def controller(service: Service, request: Nothing) -> ControllerInfo:
    """Returns the state of this instance, in any role."""
    return controller_info(service)


def controller_info(service: Service) -> ControllerInfo:
    """Returns the state of this instance, and the current controller."""
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
