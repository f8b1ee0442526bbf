"""Metrics for Prometheus, and the OpenAPI document."""

from http import HTTPStatus

from aiohttp import web

from kactl.admin.problem import Refused
from kactl.admin.prometheus import CONTENT_TYPE
from kactl.admin.route import JSON, ApiRequest
from kactl.admin.schema import NoData
from kactl.admin.service import Service
from kactl.model.errors import ErrorCode

Nothing = ApiRequest[NoData, NoData, NoData]


async def metrics(service: Service, request: Nothing) -> web.Response:
    """Returns all metrics."""
    if service.render_metrics is None:
        raise Refused(
            HTTPStatus.NOT_IMPLEMENTED,
            "No telemetry",
            "this server was started without its own telemetry: query the program that embeds it",
            code=ErrorCode.UNSUPPORTED_VERSION,
        )
    if service.controller.is_active:
        await service.read_topic_settings()
    return web.Response(body=service.render_metrics(), headers={"Content-Type": CONTENT_TYPE})


async def description(service: Service, request: Nothing) -> web.Response:
    """Returns the OpenAPI document, generated from the routes."""
    return web.Response(body=service.document, content_type=JSON)
