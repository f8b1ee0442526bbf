"""Probes for process supervisors and load balancers: liveness, readiness, leadership."""

import asyncio
from http import HTTPStatus

import msgspec

from kactl.admin.client import known_client
from kactl.admin.health_facts import READ_LIMIT_S
from kactl.admin.route import ApiRequest, Reply
from kactl.admin.schema import ControllerInfo, HoldInfo, NoData, Probe
from kactl.admin.service import Service, version
from kactl.model import Order
from kactl.model.errors import KactlError

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
    holds = await _holds(service)
    shown = None if holds is None else tuple(_hold_info(id_, hold) for id_, hold in holds.items())
    return msgspec.structs.replace(controller_info(service), holds=shown)


async def _holds(service: Service) -> dict[int, Order] | None:
    """Returns the instances that are held; None if a standby cannot read them now."""
    controller = service.controller
    try:
        if controller.is_active and controller.loop.controllership.ready:
            maintenance = controller.cluster.maintenance
        else:
            async with asyncio.timeout(READ_LIMIT_S):
                maintenance = await controller.loop.standby.maintenance()
    except (KactlError, TimeoutError):
        return None
    return maintenance.without_past(controller.clock.now_ms()).holds


def _hold_info(controller_id: int, hold: Order) -> HoldInfo:
    return HoldInfo(
        controller_id=controller_id, since_ms=hold.since_ms, until_ms=hold.until_ms, by=hold.by, reason=hold.reason
    )


def controller_info(service: Service) -> ControllerInfo:
    """Returns the state of this instance, and the current controller, without holds."""
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
