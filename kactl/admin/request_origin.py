"""Origin of a request: its id, its client, and its trace, for the controller events that it leads to."""

import contextlib
import re
import uuid
from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

from aiohttp import web
from opentelemetry import context, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kactl.model.errors import ErrorCode
from kactl.runtime.escaping import escaped
from kactl.security.access import stranger
from kactl.telemetry.event_record import ORIGIN, Origin

from . import problem
from .client import PRINCIPAL, remote_of

REQUEST_ID: Final = "X-Request-Id"
_VALID: Final = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_SHOWN_MAX: Final = 100
_PROPAGATOR: Final = TraceContextTextMapPropagator()


@contextlib.contextmanager
def origin_of(http: web.Request) -> Iterator[str]:
    """Give the events that the block queues the origin of a request that makes changes. Yields the id of the request.

    The trace is that of the program in which the API is mounted, or else the one in the W3C headers. An invalid
    `traceparent` is ignored, as the specification demands.

    Raises:
        Refused: the request's id is invalid.
    """
    given = http.headers.get(REQUEST_ID)
    if given is not None and not _VALID.fullmatch(given):
        raise problem.of_header(
            REQUEST_ID,
            f"{escaped(given, _SHOWN_MAX)!r} is not an id: use up to 128 letters, digits and ._:/+=-",
            status=HTTPStatus.BAD_REQUEST,
            title="Bad request",
            code=ErrorCode.INVALID_REQUEST,
        )
    request = given or uuid.uuid4().hex
    origin = ORIGIN.set(Origin(request=request, principal=PRINCIPAL.get() or stranger(remote_of(http) or "")))
    traced = None
    if not trace.get_current_span().get_span_context().is_valid:
        headers = {name: http.headers[name] for name in _PROPAGATOR.fields if name in http.headers}
        traced = context.attach(_PROPAGATOR.extract(headers))
    try:
        yield request
    finally:
        if traced is not None:
            context.detach(traced)
        ORIGIN.reset(origin)
