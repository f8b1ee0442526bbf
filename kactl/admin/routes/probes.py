"""Probes for process supervisors and load balancers: liveness, readiness, leadership."""

from http import HTTPStatus

from kactl.admin.client import known_client
from kactl.admin.route import ApiRequest, Reply
from kactl.admin.schema import ControllerInfo, NoData, Probe
from kactl.admin.service import Service, version

Nothing = ApiRequest[NoData, NoData, NoData]


async def livez(service: Service, request: Nothing) -> Probe:
    """Succeeds whenever the server can respond."""
    return Probe(status="ok")


async def readyz(service: Service, request: Nothing) -> Reply:
    """Ready: the store works, and this instance has completed its takeover or is a standby of a known controller."""
    loop = service.controller.loop
    if trouble := service.controller.store.trouble:
        return _probe("failing", f"the store cannot be used: {trouble}", is_ok=False)
    if service.controller.is_active:
        if loop.controllership.ready:
            return _probe("ok", "this instance is the controller")
        starting = "this instance has just been elected and is still loading the cluster"
        return _probe("starting", starting, is_ok=False)
    if loop.active_id is None:
        return _probe("starting", "no controller is known", is_ok=False)
    return _probe("ok", f"standing by for controller {loop.active_id}")


async def leader(service: Service, request: Nothing) -> Reply:
    """200 on the controller, 503 on every other instance."""
    controller = service.controller
    known = "none is known" if controller.loop.active_id is None else f"{controller.loop.active_id} is"
    detail = f"controller {controller.node_id}" if controller.is_active else f"not the controller: {known}"
    return _probe("leader" if controller.is_active else "standby", detail, is_ok=controller.is_active)


async def controller(service: Service, request: Nothing) -> ControllerInfo:
    """Returns the state of this instance, in any role."""
    return controller_info(service)


def controller_info(service: Service) -> ControllerInfo:
    """Returns the state of this instance, and the current controller."""
    controller = service.controller
    loop = controller.loop
    if service.exposure is not None:
        service.exposure.update_network(controller)
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
        insecure=() if service.exposure is None else service.exposure.listed(),
        as_of=service.as_of(),
    )


def _probe(status: str, detail: str, *, is_ok: bool = True) -> Reply:
    """Returns the response of a probe, which is one word for clients that are not identified."""
    shown = detail if known_client() is not None else ""
    return Reply(Probe(status=status, detail=shown), HTTPStatus.OK if is_ok else HTTPStatus.SERVICE_UNAVAILABLE)
