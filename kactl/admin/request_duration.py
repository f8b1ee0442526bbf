"""Durations of requests, with the attributes of OpenTelemetry's semantic conventions for HTTP servers."""

import time
from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from .host import Host

_MS: Final = 1000
_SERVER_ERROR: Final = 500


def measuring(host: Host) -> Middleware:
    """Returns the outermost middleware, which records the duration of each request; of an event stream at its end."""

    @web.middleware
    async def measure(request: web.Request, handler: Handler) -> web.StreamResponse:
        began_s = time.monotonic()
        outcome: dict[str, str | int] = {"error.type": "cancelled"}  # the client has gone
        try:
            response = await handler(request)
            outcome = {"http.response.status_code": response.status}
            if response.status >= _SERVER_ERROR:
                outcome["error.type"] = str(response.status)
            return response
        finally:
            service = host.find()
            if service is not None:
                service.controller.telemetry.requested((time.monotonic() - began_s) * _MS, _about(request) | outcome)

    return measure


def _about(http: web.Request) -> dict[str, str | int]:
    resource = http.match_info.route.resource
    return {
        # Clients choose the method, so that each unknown one would be a series of its own.
        "http.request.method": http.method if http.method in hdrs.METH_ALL else "_OTHER",
        "url.scheme": http.scheme if http.scheme in ("http", "https") else "http",
        **({} if resource is None else {"http.route": resource.canonical}),
    }
