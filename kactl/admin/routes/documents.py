"""What is no part of the cluster: metrics for Prometheus, and the description of this API."""

from http import HTTPStatus

from aiohttp import web

from kactl.admin.metrics import CONTENT_TYPE
from kactl.admin.problem import Refused
from kactl.admin.route import JSON, Asked
from kactl.admin.schema import NoQuestion
from kactl.admin.service import Service
from kactl.errors import ErrorCode

Nothing = Asked[NoQuestion, NoQuestion, NoQuestion]


async def metrics(service: Service, asked: Nothing) -> web.Response:
    """Everything that is measured."""
    if service.render_metrics is None:
        raise Refused(
            HTTPStatus.NOT_IMPLEMENTED,
            "No telemetry",
            "this server was started without telemetry of its own: ask the program that it is a part of",
            code=ErrorCode.UNSUPPORTED_VERSION,
        )
    return web.Response(body=service.render_metrics(), headers={"Content-Type": CONTENT_TYPE})


async def description(service: Service, asked: Nothing) -> web.Response:
    """The document, made from the very routes that are served."""
    return web.Response(body=service.document, content_type=JSON)
