"""The admin API as an aiohttp application, which a host program can mount.

    host.add_subapp("/kactl", kactl.admin.application(controller, prefix="/kactl", access=access))

The host's middlewares run first. Errors are converted to problem documents below the prefix only.
"""

import contextlib
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec
from aiohttp import HttpVersion10, web
from aiohttp.typedefs import Middleware

from kactl.actors.system import Controller
from kactl.decide.messages import arguments
from kactl.model.errors import BadRequest, ErrorCode, NotController
from kactl.participant.group import Participants
from kactl.participant.participant import Participant
from kactl.runtime.budget import Unit
from kactl.runtime.error_id import log_error
from kactl.runtime.escaping import escaped, harmless_json
from kactl.runtime.logs import logger
from kactl.runtime.prices import ADMIN_PRICES
from kactl.runtime.tasks import Tasks
from kactl.security.access.role import Role
from kactl.security.access.tokens import without_secrets

from . import dashboard_files, exposure, openapi, problem, versions
from .access import MountedPolicy, Policy
from .audit import AUDIT_LOGGER
from .client import CLIENT, IS_ADMITTED, PRINCIPAL, client_name, client_of, forget
from .connections import Connection
from .embedded import Access, Action, Limits, Open, Tokens
from .exposure_report import ExposureReport
from .host import Host
from .limits import HEAVY_MAX, REQUESTS_AT_ONCE_MAX, Capacity
from .one_participant import OneParticipant
from .origin import is_host
from .problem import Refused
from .request_duration import measuring
from .request_origin import REQUEST_ID, origin_of
from .route import JSON, ApiRequest, Reply, Route, check_reason, check_type, read
from .routes.route_table import ROUTES
from .schema import Answer, Probe, ProblemController
from .service import Service, Surroundings

log = logger(__name__)
audit_log = logger(AUDIT_LOGGER)

# The part of a request that an error message repeats.
SHOWN_MAX: Final = 200
# Statuses of requests that the audit trail records.
DENIALS: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.MISDIRECTED_REQUEST})
LIVENESS: Final = "/livez"
PROBES: Final = frozenset({LIVENESS, "/readyz", "/leader"})
HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
# In problem documents for clients that are not admitted: which controller is active is a fact about the cluster.
UNNAMED: Final = ProblemController(id=None, epoch=0)
_encoder = msgspec.json.Encoder()
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(
    controller: Controller | Callable[[], Controller | None],
    *,
    access: Access,
    prefix: str = "",
    hosts: Sequence[str] = (),
    limits: Limits | None = None,
    participants: Participants | Participant | None = None,
    metrics: Callable[[], bytes] | None = None,
) -> web.Application:
    """Returns the admin API of a controller, to be mounted in an aiohttp application.

    Several applications may serve one controller.

    Args:
        controller: need not be entered yet: until it is, requests get 503. Or a function that returns it, or None.
        access: decides about each request but the probes and the files of the dashboard, which contain no data.
        prefix: the path at which the application is mounted, as given to `add_subapp`.
        hosts: names by which clients reach the application, as `name` or `name:port`, besides its addresses and
            `localhost`.
        limits: of event streams; None for the defaults.
        participants: the brokers of this process, which the API can kill and restart.
        metrics: renders the metrics for Prometheus.

    Raises:
        BadRequest: the prefix does not begin with a slash, or ends with one; a host has another form; the access object
            lacks a method.
    """
    if arguments.text(prefix, "prefix") and (not prefix.startswith("/") or prefix.endswith("/")):
        raise BadRequest("prefix", f"{prefix!r} cannot be used: begin with a slash and end without one, as in '/kactl'")
    if access is None:
        raise BadRequest("access", "is None: pass an object that decides about requests, such as kactl.admin.Delegated")
    arguments.implements(access, Access, "access")
    _check_hosts(hosts)
    limits = limits or Limits()
    is_insecure = isinstance(access, Open)
    report = _report(is_open=is_insecure)
    host = Host(
        controller,
        Surroundings(
            participants=OneParticipant(participants) if isinstance(participants, Participant) else participants,
            render_metrics=metrics,
            document=openapi_document(prefix),
            prefix=prefix,
            capacity=Capacity(streams=limits.streams, streams_per_client=limits.streams_per_principal),
            credentials=access.credentials if isinstance(access, Tokens) else None,
            exposure=report,
        ),
    )
    made = mountable(host, MountedPolicy(access, hosts))
    if is_insecure:
        made.cleanup_ctx.append(functools.partial(_reminded, report))
    return made


def _report(*, is_open: bool) -> ExposureReport:
    reason = "kactl.admin.Open: the mounted admin API has no authentication"
    openings = [exposure.Opening(exposure.API, "access", reason)] if is_open else []
    return ExposureReport([exposure.API], openings, now_ms=lambda: int(time.time() * 1000))


async def _reminded(report: ExposureReport, _: web.Application) -> AsyncIterator[None]:
    """Log each day that clients need no identity."""
    tasks = Tasks("the mounted admin API")
    tasks.spawn(report.run())
    yield
    await tasks.close()


def _check_hosts(hosts: Sequence[str]) -> None:
    """Check the names of an application.

    Raises:
        BadRequest: one of them is no host.
    """
    if isinstance(hosts, str):
        raise BadRequest("hosts", f"{hosts!r} is one name: give a list of them")
    for host in hosts:
        if not isinstance(host, str) or not is_host(host):
            raise BadRequest("hosts", f"{host!r} is not a name: write name or name:port, without a scheme")


@functools.lru_cache(maxsize=16)
def openapi_document(prefix: str) -> bytes:
    """Returns the document, built once for all applications of the process with this prefix."""
    return openapi.rendered(ROUTES, prefix=prefix)


def mountable(
    host: Host, policy: Policy, *, headers: dict[str, str] | None = None, probes_only: bool = False
) -> web.Application:
    """Returns the application of a host.

    Args:
        headers: of all responses, besides those of the API.
        probes_only: it has the routes of probes alone.
    """

    async def close(_: web.Application) -> None:
        host.close()

    async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        response.headers.update(headers or {})

    made = web.Application(middlewares=[measuring(host), _middleware(host, policy, probes_only=probes_only)])
    if not probes_only:
        made.on_shutdown.append(close)
    made.on_response_prepare.append(add_headers)
    for route in ROUTES:
        if probes_only and route.path not in PROBES:
            continue
        handler = _handler(host, policy, route)
        for method in ("GET", "HEAD") if route.method == "GET" else (route.method,):
            made.router.add_route(method, route.path, handler, expect_handler=_expect_later)
    if host.has_dashboard and not probes_only:
        for path in ("/", f"{dashboard_files.FOLDER}{{name}}"):
            made.router.add_get(path, dashboard_files.serve_file)
    return made


async def _expect_later(_: web.Request) -> None:
    """Leave `Expect` to the reader of the body: no body is requested before the request is accepted."""


def _handler(host: Host, policy: Policy, route: Route) -> _Handler:
    """Returns the aiohttp handler of a route: parse the request, check it, call the handler, encode the response."""

    price = ADMIN_PRICES[f"{route.method} {route.path}"]

    async def handle(http: web.Request) -> web.StreamResponse:
        paid_ms = 0.0
        action = Action(
            route.action, route.operation(route.method), route.resource_kind, _resource(http), route.role.label
        )
        if route.role is not Role.NONE:
            PRINCIPAL.set(await policy.authorize(http, action, route.least_role))
            CLIENT.set(client_of(http))
            IS_ADMITTED.set(True)
            check_type(route, http)
            paid_ms = price.ms(size=min(http.content_length or 0, route.body_bytes_max))
            policy.charge({Unit.READS if action.effect == "read" else Unit.CHANGES: 1, Unit.WORK: paid_ms})
        if route.path == LIVENESS and host.find() is None:
            return _encoded(Reply(Probe(status="ok", detail="the controller does not run now")))
        service = host.service()
        if route.role is Role.NONE:
            return await carry_out(service, http, action)
        with _heavy(service, http) if route.is_heavy else contextlib.nullcontext():
            return await policy.metered(carry_out(service, http, action), paid_ms=paid_ms)

    async def carry_out(service: Service, http: web.Request, action: Action) -> web.StreamResponse:
        asked = await read(route, http)
        if (needed := route.role_of(asked)) is not route.least_role:
            await policy.check_content(http, action, needed)
        check_reason(route, asked)
        if route.partitions is not None:
            policy.charge({Unit.WORK: price.partition_ms * route.partitions(service, asked)})
        if route.from_copy:
            await service.prepare()
        elif route.only_active:
            service.require_active()
        if not route.writes:
            return await _answered(service, route, asked)
        async with versions.lock_of(service, http) or contextlib.nullcontext():
            version = route.version or versions.of_controller
            await versions.check(service, http, version, asked.path, asked.expected_epoch)
            with origin_of(http) as request_id:
                answer = await _answered(service, route, asked)
            answer.headers[REQUEST_ID] = request_id
            return answer

    return handle


@contextlib.contextmanager
def _heavy(service: Service, http: web.Request) -> Iterator[None]:
    """Count a request that takes long.

    Raises:
        Refused: 429, as many of the same client run.
    """
    client = client_name(http)
    if service.heavy[client] >= HEAVY_MAX:
        raise Refused(
            HTTPStatus.TOO_MANY_REQUESTS,
            "Too many requests",
            f"{HEAVY_MAX} plans and explanations of this client run: send the next one when they have ended",
            code=ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            headers={"Retry-After": "1"},
            retriable=True,
        )
    service.heavy[client] += 1
    try:
        yield
    finally:
        service.heavy[client] -= 1
        if not service.heavy[client]:
            del service.heavy[client]


def _resource(http: web.Request) -> str | None:
    return "-".join(http.match_info.values()) or None


async def _answered(service: Service, route: Route, asked: ApiRequest[Any, Any, Any]) -> web.StreamResponse:
    # Before the handler runs: an older version than the response's makes a later write fail; a newer one would lose it.
    version = None if route.version is None or route.writes else await route.version(service, asked.path)
    if not route.writes:
        versions.check_read(asked.http, version, has_version=route.version is not None)
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
    return _encoded(Reply(answer.answer, answer.status, headers))


def _encoded(reply: Reply) -> web.Response:
    body = harmless_json(_encoder.encode(reply.answer))
    return web.Response(body=body, status=reply.status, headers=reply.headers, content_type=JSON)


# -- middleware --------------------------------------------------------------------------------------------------------


def _middleware(host: Host, policy: Policy, *, probes_only: bool = False) -> Middleware:
    """Returns the middleware of all requests, which converts errors to problem documents."""

    def is_open(path: str) -> bool:
        return path in PROBES or (not probes_only and host.has_dashboard and dashboard_files.is_file(path))

    @web.middleware
    async def handle_request(request: web.Request, handler: _Handler) -> web.StreamResponse:
        forget()
        service = host.find()
        if service is not None:
            service.answering += 1
        try:
            if service is not None and local_path(host, request) not in PROBES:
                _check_room(service, request)
            if request.version < HttpVersion10:
                raise unreadable(HTTPStatus.BAD_REQUEST, "not an HTTP version")
            policy.check_host(request)
            await policy.authenticate(request, is_open=is_open(local_path(host, request)))
            policy.check_site(request)
            return await handler(request)
        except web.HTTPException as refusal:
            return _refusal(host, request, _translated(host, refusal, request))
        except Exception as error:
            if isinstance(error, Refused) and _is_denial(error):
                _record_denial(host, request, error)
            return _refusal(host, request, error)
        finally:
            if service is not None:
                service.answering -= 1

    return handle_request


def _is_denial(error: Refused) -> bool:
    """Returns whether a client was refused for what it is, also after too many failures of its address."""
    return error.is_denial or error.status in DENIALS or (error.status == HTTPStatus.TOO_MANY_REQUESTS and error.closes)


def _record_denial(host: Host, http: web.Request, error: Refused) -> None:
    service = host.find()
    client = client_of(http)
    is_new = host.trail.deny(
        time_ms=int(time.time() * 1000) if service is None else service.controller.clock.now_ms(),
        node_id=-1 if service is None else service.controller.node_id,
        controller_epoch=0 if service is None else service.controller.cluster.fence.epoch,
        detail=escaped(str(error)),
        **client._asdict(),
    )
    if is_new:
        by = client.principal or "a client without identity"
        audit_log.warning("%s denied to %s from %s: %s", client.operation, by, client.peer, error)


def local_path(host: Host, http: web.Request) -> str:
    """Returns the path of a request below the prefix. A proxy may have removed the prefix."""
    return http.path.removeprefix(host.prefix) if http.path.startswith(f"{host.prefix}/") else http.path


def _check_room(service: Service, http: web.Request) -> None:
    """Reject all requests except probes while the server is full.

    Raises:
        Refused: 503.
    """
    reserved = isinstance(http.protocol, Connection) and http.protocol.probes_only
    if reserved or service.answering - service.streams > REQUESTS_AT_ONCE_MAX:
        limit = service.capacity.connections if reserved else REQUESTS_AT_ONCE_MAX
        raise Refused(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "Too many connections" if reserved else "Too many requests at once",
            f"{limit} requests are running, which is the limit: retry later",
            code=ErrorCode.REQUEST_TIMED_OUT,
            retriable=True,
        )


def _refusal(host: Host, http: web.Request, error: Exception) -> web.Response:
    instance = escaped(without_secrets(host.prefix + local_path(host, http)), SHOWN_MAX)
    controller = host.known_controller() if IS_ADMITTED.get() else UNNAMED
    error_id = ""
    if problem.is_internal(error):
        error_id = log_error(log, error, "%s %s failed", http.method, without_secrets(http.path))
    refused = response(error, instance=instance, controller=controller, error_id=error_id)
    if isinstance(error, NotController) and controller.api_url and "Origin" not in http.headers:
        # Not for web pages: they could not follow to another origin, and would only see that the request failed.
        refused.set_status(HTTPStatus.TEMPORARY_REDIRECT)
        refused.headers["Location"] = controller.api_url + http.raw_path
    if isinstance(error, Refused) and error.closes:
        refused.force_close()
    return refused


def response(
    error: Exception,
    *,
    instance: str,
    controller: ProblemController = UNNAMED,
    headers: dict[str, str] | None = None,
    error_id: str = "",
) -> web.Response:
    """Returns the problem document of an error, with all headers even if no route matched."""
    document, own = problem.of(error, instance=instance, controller=controller, error_id=error_id)
    return web.Response(
        body=harmless_json(_encoder.encode(document)),
        status=document.status,
        headers={**HEADERS, **(headers or {}), **own},
        content_type=problem.CONTENT_TYPE,
    )


def _translated(host: Host, refusal: web.HTTPException, http: web.Request) -> Refused:
    """Convert an error of aiohttp's router to an error of this API."""
    path = escaped(http.path, SHOWN_MAX)
    if isinstance(refusal, web.HTTPNotFound):
        detail = f"{path} does not exist: GET {host.prefix}/openapi.json lists all routes"
        return Refused(HTTPStatus.NOT_FOUND, "No such route", detail)
    if isinstance(refusal, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(refusal.allowed_methods))
        detail = f"{escaped(http.method, SHOWN_MAX)} cannot be used at {path}; use {allowed}"
        return Refused(HTTPStatus.METHOD_NOT_ALLOWED, "Method not allowed", detail, headers={"Allow": allowed})
    return unreadable(refusal.status, refusal.reason)


def unreadable(status: int, reason: str, error_id: str = "") -> Refused:
    """Convert an error of aiohttp or its parser to an error of this API.

    Args:
        error_id: under which an unexpected exception is in the log.
    """
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return problem.internal(error_id, status)
    shown = escaped(reason, SHOWN_MAX).rstrip(".: ")
    return Refused(status, "Bad request", f"not a valid HTTP/1.1 request ({shown}): correct it")
