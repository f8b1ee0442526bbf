"""Applications for HTTP: `application` is the admin API, `roles` the health checks of a participant."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kactl.security.access import Principal

    from .embedded import (
        Access,
        AccessRequest,
        Action,
        Allow,
        Certificates,
        Decision,
        Delegated,
        Deny,
        Limits,
        Open,
        Tokens,
    )
    from .mounting import application
    from .role_endpoint import roles

__all__ = [
    "Access",
    "AccessRequest",
    "Action",
    "Allow",
    "Certificates",
    "Decision",
    "Delegated",
    "Deny",
    "Limits",
    "Open",
    "Principal",
    "Tokens",
    "application",
    "roles",
]

# Imported when first used: other modules of this package are needed without aiohttp.
_HOME = {
    **dict.fromkeys(
        (
            "Access",
            "AccessRequest",
            "Action",
            "Allow",
            "Certificates",
            "Decision",
            "Delegated",
            "Deny",
            "Limits",
            "Open",
            "Tokens",
        ),
        "embedded",
    ),
    "Principal": "client",
    "application": "mounting",
    "roles": "role_endpoint",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOME[name]}")
    found = globals()[name] = getattr(module, name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
