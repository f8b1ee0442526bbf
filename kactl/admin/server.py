"""Admin server: binds the routes to an address and handles errors of all requests.

There is no authentication yet, so only clients on this machine may change anything, unless `api.allow-changes` permits
all clients. A page in a browser is also such a client: `origin` rejects requests of other servers' pages, and changes
need a JSON content type, which a form cannot send.
"""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import msgspec
from aiohttp import HttpVersion10, web
from aiohttp.typedefs import Middleware

from kactl.actors.system import Controller
from kactl.config.settings import Config
from kactl.errors import BadConfig, ErrorCode
from kactl.participant.group import Participants
from kactl.runtime.escaping import escaped
from kactl.runtime.logs import logger

from . import limits, openapi, origin, problem, versions
from .acceptor import Acceptor, bound
from .connections import Connection, Gate, observe
from .limits import Capacity
from .problem import Refused
from .route import JSON, ApiRequest, Reply, Route, read
from .routes.route_table import ROUTES
from .schema import Answer
from .service import Service

log = logger(__name__)

# Streams end at once when the server stops; other requests get this long.
SHUTDOWN_TIMEOUT_S: Final = 5
# The part of a request that an error message repeats.
SHOWN_MAX: Final = 200
_PROBES: Final = frozenset({"/livez", "/readyz", "/leader"})
_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Server": "kactl"}
_encoder = msgspec.json.Encoder()
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Address(NamedTuple):
    """The address at which the server can be reached."""

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
    capacity: Capacity | None = None,
) -> AsyncIterator[Address]:
    """Serve the admin API while the block runs, in the event loop of the controller.

    Args:
        controller: already entered.
        participants: the brokers of this process; the API can kill and restart them.
        render_metrics: from `telemetry_for_server`; the controller uses its meter provider.
        capacity: limit of connections; None for the number that the descriptors of this process allow.

    Raises:
        BadConfig: the address cannot be bound, or there are too few file descriptors.
    """
    if capacity is None:
        capacity = _capacity(config)
    service = Service(controller, config, participants, render_metrics, _openapi_document(), capacity)
    gate = Gate(capacity)
    runner = web.AppRunner(
        _application(service), access_log=None, handle_signals=False, shutdown_timeout=SHUTDOWN_TIMEOUT_S
    )
    await runner.setup()
    server = runner.server
    assert server is not None, "made by setup"
    observe(server)

    def refuse(status: int, reason: str) -> web.Response:
        return _response(service, _unreadable(status, reason), instance="")

    try:
        wanted = config.api.address
        try:
            acceptor = Acceptor(
                bound(wanted.host, wanted.port), gate, lambda peer: Connection(server, gate, refuse, peer=peer)
            )
        except OSError as error:
            reason = f"{config.api.listen} cannot be listened on ({error.strerror}): choose another address or port"
            raise BadConfig("api.listen", reason) from None
        controller.telemetry.observe(gate.readings())
        acceptor.start()
        watch = asyncio.create_task(service.progress.run(controller.cluster))
        try:
            address = Address(*acceptor.addresses[0][:2])
            log.info("the admin API listens at %s", address.url)
            if not all(origin.is_loopback(address[0]) for address in acceptor.addresses):
                writers = "every client" if config.api.allow_changes == "any" else "clients on this machine"
                log.warning("%s can be reached from other machines: they can read everything, and %s can change it",
                            address.url, writers)  # fmt: skip
            yield address
        finally:
            watch.cancel()
            await acceptor.stop()
    finally:
        await runner.cleanup()


@functools.cache
def _openapi_document() -> bytes:
    """Returns the document, built once for all servers of the process."""
    return openapi.rendered(ROUTES)


def _capacity(config: Config) -> Capacity:
    others = config.kafka.max_connections if config.kafka.listeners else 0
    descriptors = limits.descriptors_max()
    capacity = limits.capacity(descriptors, others=others)
    if capacity != Capacity():
        log.warning(
            "this process may open %d files (ulimit -n), so the admin API accepts %d connections instead of %d",
            descriptors, capacity.connections, limits.CONNECTIONS_MAX,
        )  # fmt: skip
    return capacity


def _application(service: Service) -> web.Application:
    async def close(_: web.Application) -> None:
        service.closing.set()

    async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
        for name, value in _HEADERS.items():
            response.headers[name] = value

    application = web.Application(middlewares=[_middleware(service)])
    application.on_shutdown.append(close)
    application.on_response_prepare.append(add_headers)
    for route in ROUTES:
        handler = _handler(service, route)
        for method in (route.method, "HEAD") if route.head else (route.method,):
            application.router.add_route(method, route.path, handler, expect_handler=_expect_later)
    return application


async def _expect_later(_: web.Request) -> None:
    """Leave `Expect` to the reader of the body: no body is requested before the request is accepted."""


def _handler(service: Service, route: Route) -> _Handler:
    """Returns the aiohttp handler of a route: parse the request, check it, call the handler, encode the response."""

    async def handle(http: web.Request) -> web.StreamResponse:
        if route.writes:
            _check_writer(service, http)
        asked = await read(route, http)
        if route.from_copy:
            await service.prepare()
        elif route.only_active:
            service.require_active()
        if not route.writes:
            return await _answered(service, route, asked)
        async with versions.lock_of(service, http) or contextlib.nullcontext():
            version = route.version or versions.of_controller
            await versions.check(service, http, version, asked.path, asked.expected_epoch)
            return await _answered(service, route, asked)

    return handle


async def _answered(service: Service, route: Route, asked: ApiRequest[Any, Any, Any]) -> web.StreamResponse:
    # Before the handler runs: an older version than the response's makes a later write fail; a newer one would lose it.
    version = None if route.version is None or route.writes else await route.version(service, asked.path)
    if version is not None and route.from_copy:
        await service.prepare()  # the result of the previous call may have changed meanwhile
    answer = await route.handler(service, asked)
    if isinstance(answer, web.StreamResponse):
        return answer
    if isinstance(answer, Answer):
        answer = Reply(answer)
    headers = {**answer.headers, **({} if version is None else {"ETag": version})}
    if route.from_copy and service.age_ms is not None:
        as_of = service.as_of()
        headers |= {"Kactl-As-Of": f"{as_of.epoch}/{as_of.seq}", "Kactl-Standby-Age-Ms": str(as_of.age_ms)}
    return web.Response(body=_encoder.encode(answer.answer), status=answer.status, headers=headers, content_type=JSON)


# -- middleware --------------------------------------------------------------------------------------------------------


def _middleware(service: Service) -> Middleware:
    """Returns the middleware of all requests, which converts errors to problem documents."""

    @web.middleware
    async def handle_request(request: web.Request, handler: _Handler) -> web.StreamResponse:
        service.answering += 1
        try:
            if request.path not in _PROBES:
                _check_room(service, request)
            if request.version < HttpVersion10:
                raise _unreadable(HTTPStatus.BAD_REQUEST, "not an HTTP version")
            origin.check(request, service.config.api)
            return await handler(request)
        except web.HTTPException as refusal:
            return _refusal(service, request, _translated(refusal, request))
        except Exception as error:
            return _refusal(service, request, error)
        finally:
            service.answering -= 1

    return handle_request


def _check_room(service: Service, http: web.Request) -> None:
    """Reject all requests except probes while the server is full.

    Raises:
        Refused: 503.
    """
    reserved = isinstance(http.protocol, Connection) and http.protocol.probes_only
    if reserved or service.answering - service.streams > limits.REQUESTS_AT_ONCE_MAX:
        limit = service.capacity.connections if reserved else limits.REQUESTS_AT_ONCE_MAX
        raise Refused(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "Too many connections" if reserved else "Too many requests at once",
            f"{limit} requests are running, which is the limit: retry later",
            code=ErrorCode.REQUEST_TIMED_OUT,
            retriable=True,
        )


def _refusal(service: Service, http: web.Request, error: Exception) -> web.Response:
    response = _response(service, error, instance=escaped(http.path, SHOWN_MAX))
    if response.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error("%s %s failed: %s", http.method, http.path, error, exc_info=error)
    return response


def _response(service: Service, error: Exception, *, instance: str) -> web.Response:
    """Returns the problem document of an error, with all headers even if no route matched."""
    document, headers = problem.of(error, instance=instance, controller=service.known_controller())
    return web.Response(
        body=_encoder.encode(document),
        status=document.status,
        headers={**_HEADERS, **headers},
        content_type=problem.CONTENT_TYPE,
    )


def _translated(refusal: web.HTTPException, http: web.Request) -> Refused:
    """Convert an error of aiohttp's router to an error of this API."""
    path = escaped(http.path, SHOWN_MAX)
    if isinstance(refusal, web.HTTPNotFound):
        detail = f"{path} does not exist: GET /openapi.json lists all routes"
        return Refused(HTTPStatus.NOT_FOUND, "No such route", detail)
    if isinstance(refusal, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(refusal.allowed_methods))
        detail = f"{escaped(http.method, SHOWN_MAX)} cannot be used at {path}; use {allowed}"
        return Refused(HTTPStatus.METHOD_NOT_ALLOWED, "Method not allowed", detail, headers={"Allow": allowed})
    return _unreadable(refusal.status, refusal.reason)


def _unreadable(status: int, reason: str) -> Refused:
    """Convert an error of aiohttp or its parser to an error of this API."""
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Refused(
            status,
            "Internal error",
            "internal error of kactl; details are in the server's log. Please report it",
            code=ErrorCode.UNKNOWN_SERVER_ERROR,
        )
    shown = escaped(reason, SHOWN_MAX).rstrip(".: ")
    return Refused(status, "Bad request", f"not a valid HTTP/1.1 request ({shown}): correct it")


def _check_writer(service: Service, http: web.Request) -> None:
    """Check that this client may change something.

    Raises:
        Refused: 403.
    """
    peer = http.transport.get_extra_info("peername") if http.transport is not None else None
    if service.config.api.allow_changes == "any" or (isinstance(peer, tuple) and origin.is_loopback(peer[0])):
        return
    raise Refused(
        HTTPStatus.FORBIDDEN,
        "Read only",
        f"this server accepts changes from its own machine only, and {peer[0] if peer else 'this client'} is another "
        'one: send the request from there, or set allow-changes = "any" in [api] of its configuration, which lets '
        "every client that reaches it change the cluster",
        code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    )
