"""Health checks by role: a load balancer sends requests to the process that leads.

    GET /roles/orders/7    200 with the token while this process leads orders-7 under a lease, otherwise 503
    GET /roles/orders      200 while it leads any partition of the topic

A response that was right when it was sent may arrive after the lease has ended. The process checks its lease again when
it serves the request, with `leader.check()`.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
from aiohttp import web

from kactl.decide.messages import arguments
from kactl.model import TopicPartition
from kactl.model.errors import BadRequest
from kactl.participant.leases.leader import Leader
from kactl.participant.participant import Participant

JSON: Final = "application/json"
_HEADERS: Final = {"Cache-Control": "no-store"}
_encoder = msgspec.json.Encoder()


def roles(participant: Participant, *, prefix: str = "") -> web.Application:
    """Returns the application, to be mounted under `prefix`, or to be served alone.

    Raises:
        BadRequest: the prefix does not begin with a slash, or ends with one.
    """
    if arguments.text(prefix, "prefix") and (not prefix.startswith("/") or prefix.endswith("/")):
        raise BadRequest("prefix", f"{prefix!r} cannot be used: begin with a slash and end without one, as in '/kactl'")

    async def of_partition(request: web.Request) -> web.Response:
        topic, number = request.match_info["topic"], int(request.match_info["partition"])
        name = TopicPartition(topic, number)
        leader = participant.leadership(name)
        if leader is not None and leader.is_valid:
            return _leads(leader)
        return _follows(_route(participant, name))

    async def of_topic(request: web.Request) -> web.Response:
        topic = request.match_info["topic"]
        for leader in participant.iter_leaderships(topic):
            if leader.is_valid:
                return _leads(leader)
        return _follows({"topic": topic, "leads": False})

    application = web.Application()
    # At most nine digits: a partition number, and no number that would have to be converted at length.
    for path, handler in (
        (r"/roles/{topic}/{partition:\d{1,9}}", of_partition),
        ("/roles/{topic}", of_topic),
    ):
        application.router.add_get(path, handler)
    return application


def _leads(leader: Leader) -> web.Response:
    name = leader.partition
    return _answer(
        HTTPStatus.OK,
        {"topic": name.topic, "partition": name.partition, "leads": True, "token": str(leader.token)},
    )


def _follows(state: Mapping[str, Any]) -> web.Response:
    return _answer(HTTPStatus.SERVICE_UNAVAILABLE, state)


def _route(participant: Participant, name: TopicPartition) -> dict[str, Any]:
    """Returns the leader as far as this participant knows it, which may lead no more."""
    known = participant.partition(name)
    leader = None if known is None or known.leader < 0 else known.leader
    broker = None if leader is None else participant.live_brokers.get(leader)
    endpoint = broker.endpoints[0] if broker is not None and broker.endpoints else None
    return {
        "topic": name.topic,
        "partition": name.partition,
        "leads": False,
        "leader": leader,
        "leader_epoch": None if known is None else known.leader_epoch,
        "endpoint": None if endpoint is None else {"host": endpoint.host, "port": endpoint.port},
    }


def _answer(status: int, state: Mapping[str, Any]) -> web.Response:
    return web.Response(status=status, body=_encoder.encode(state), content_type=JSON, headers=_HEADERS)
