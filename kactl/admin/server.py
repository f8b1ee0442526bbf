"""The admin server: routes bound to an address, and one door through which every request comes and goes.

Whoever can reach the server can change the cluster, so it listens on loopback unless it is told otherwise, and refuses
changes where others could reach it. A page in a browser on the same machine can reach it too: changes need a JSON
content type, which no form can send, and an `Origin`, where there is one, has to be the server's own.
"""

import contextlib
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from kactl.actors.system import Controller
from kactl.config import Config
from kactl.errors import BadConfig, ErrorCode
from kactl.logs import logger
from kactl.participant.group import Participants

from . import openapi, problem
from .problem import Refused
from .route import BODY_BYTES_MAX, JSON, Reply, Route, read
from .routes.table import ROUTES
from .schema import Answer, FieldError
from .service import Service

log = logger(__name__)

# Streams end at once when the server does; what else is on its way gets this long.
SHUTDOWN_TIMEOUT_S: Final = 5
_encoder = msgspec.json.Encoder()
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Address(NamedTuple):
    """Where the server can be reached."""

    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"


@contextlib.asynccontextmanager
async def serve(
    controller: Controller,
    config: Config,
    *,
    participants: Participants | None = None,
    render_metrics: Callable[[], bytes] | None = None,
) -> AsyncIterator[Address]:
    """Serve the admin API for as long as the block lasts, in the event loop of the controller.

    Args:
        controller: entered already.
        participants: the brokers of this process, which can be killed and restarted then.
        render_metrics: of `telemetry_for_server`, whose meter provider the controller was given.

    Raises:
        BadConfig: the address cannot be listened on.
    """
    service = Service(controller, config, participants, render_metrics, openapi.rendered(ROUTES))
    runner = web.AppRunner(
        _application(service),
        access_log=None,
        handle_signals=False,
        shutdown_timeout=SHUTDOWN_TIMEOUT_S,
        auto_decompress=False,  # what unfolds to gigabytes would hold up the controller before it could be refused
    )
    await runner.setup()
    try:
        wanted = config.api.address
        try:
            await web.TCPSite(runner, wanted.host, wanted.port).start()
        except OSError as error:
            reason = f"{config.api.listen} cannot be listened on ({error.strerror}): choose another address or port"
            raise BadConfig("api.listen", reason) from None
        service.allow_writes = all(_is_loopback(bound[0]) for bound in runner.addresses)
        address = Address(*runner.addresses[0][:2])
        log.info("the admin API listens at %s", address.url)
        if not service.allow_writes:
            log.warning("others can reach %s: everything can be read there, and nothing changed", address.url)
        yield address
    finally:
        await runner.cleanup()


def _application(service: Service) -> web.Application:
    async def close(_: web.Application) -> None:
        service.closing.set()

    application = web.Application(middlewares=[_door(service)], client_max_size=BODY_BYTES_MAX)
    application.on_shutdown.append(close)
    for route in ROUTES:
        handler = _handler(service, route)
        if route.method == "GET":
            application.router.add_get(route.path, handler, allow_head=route.head)
        else:
            application.router.add_route(route.method, route.path, handler)
    return application


def _handler(service: Service, route: Route) -> _Handler:
    """Who answers a route, between reading what is asked and writing the answer."""

    async def handle(http: web.Request) -> web.StreamResponse:
        if route.writes:
            _check_writer(service, http)
        asked = await read(route, http)
        if route.only_active:
            service.require_active()
        answer = await route.handler(service, asked)
        if isinstance(answer, web.StreamResponse):
            return answer
        if isinstance(answer, Answer):
            answer = Reply(answer)
        return web.Response(
            body=_encoder.encode(answer.answer), status=answer.status, headers=answer.headers, content_type=JSON
        )

    return handle


# -- the door ----------------------------------------------------------------------------------------------------------


def _door(service: Service) -> Middleware:
    """What every request passes: whatever goes wrong behind it becomes a problem that can be read."""

    @web.middleware
    async def door(request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            response = await handler(request)
        except web.HTTPException as refusal:
            response = _refusal(service, request, _translated(refusal, request))
        except Exception as error:
            response = _refusal(service, request, error)
        if not response.prepared:
            response.headers["Cache-Control"] = "no-store"
            response.headers["X-Content-Type-Options"] = "nosniff"
            response.headers["Server"] = "kactl"
        return response

    return door


def _refusal(service: Service, http: web.Request, error: Exception) -> web.Response:
    told, headers = problem.of(error, instance=http.path, controller=service.who())
    if told.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error("%s %s failed: %s", http.method, http.path, error, exc_info=error)
    return web.Response(
        body=_encoder.encode(told), status=told.status, headers=headers, content_type=problem.CONTENT_TYPE
    )


def _translated(refusal: web.HTTPException, http: web.Request) -> Refused:
    """What aiohttp itself refuses, in our words."""
    if isinstance(refusal, web.HTTPNotFound):
        detail = f"there is nothing at {http.path}: GET /openapi.json lists what there is"
        return Refused(HTTPStatus.NOT_FOUND, "No such route", detail)
    if isinstance(refusal, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(refusal.allowed_methods))
        detail = f"{http.method} cannot be used at {http.path}; use {allowed}"
        return Refused(HTTPStatus.METHOD_NOT_ALLOWED, "Method not allowed", detail, headers={"Allow": allowed})
    if isinstance(refusal, web.HTTPRequestEntityTooLarge):
        detail = f"the body has more than {BODY_BYTES_MAX} bytes; send less at a time"
        return Refused(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "Body too large", detail, errors=[FieldError(detail, pointer="")]
        )
    return Refused(refusal.status, refusal.reason, refusal.text or refusal.reason)


def _check_writer(service: Service, http: web.Request) -> None:
    """Whether changes may be asked for over this connection.

    Raises:
        Refused.
    """
    if not service.allow_writes:
        raise Refused(
            HTTPStatus.FORBIDDEN,
            "Read only",
            f"this server listens on {service.config.api.listen}, where anybody could change the cluster: "
            "ask a server that listens on loopback (api.listen)",
            code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        )
    for origin in http.headers.getall("Origin", []):
        if not _is_own(origin, http.host):
            raise problem.of_header(
                "Origin",
                f"{origin!r} is not this server ({http.host}): changes cannot be asked for by pages of others",
                status=HTTPStatus.FORBIDDEN,
                title="Foreign origin",
                code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            )


def _is_own(origin: str, host: str) -> bool:
    """Whether an origin is this server, by a name that only this machine can have.

    A name that somebody else's name server gives out could be made to mean this machine, after a page was loaded
    under it; origin and host would agree then.
    """
    try:
        parts = urlsplit(origin)
        name = parts.hostname or ""
    except ValueError:
        return False
    return parts.netloc.lower() == host.lower() and (name == "localhost" or _is_loopback(name))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
