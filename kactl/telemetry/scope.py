"""Instrumentation scope of all metrics and spans of kactl."""

import functools
import importlib.metadata
from typing import Final

from opentelemetry import metrics, trace

_NAME: Final = "kactl"
# The version of the semantic conventions that names as `rpc.system.name` and `http.route` are taken from.
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.40.0"


@functools.cache
def version() -> str:
    """Returns the version of kactl; empty if it runs from a tree that is not installed."""
    try:
        return importlib.metadata.version(_NAME)
    except importlib.metadata.PackageNotFoundError:
        return ""


def meter_of(provider: metrics.MeterProvider | None) -> metrics.Meter:
    """Returns the meter of a provider; of the host program's if it is None."""
    return metrics.get_meter(_NAME, version(), provider, SCHEMA_URL)


def tracer_of(provider: trace.TracerProvider | None) -> trace.Tracer:
    """Returns the tracer of a provider; of the host program's if it is None."""
    return trace.get_tracer(_NAME, version(), provider, SCHEMA_URL)
