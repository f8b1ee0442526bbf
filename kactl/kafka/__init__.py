"""Kafka listeners of a program that embeds a controller: `listener`, and what decides about logins and requests.

security = kactl.kafka.ListenerSecurity(
    kactl.kafka.Authentication("SASL_SSL", mechanisms=("OAUTHBEARER",), validate_token=validate),
    tls,
    kactl.kafka.DelegatedAuthorizer(decide),
)
async with kactl.kafka.listener(controller, {"CLIENTS://127.0.0.1:9095": security}):
    ...
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kactl.model import Endpoint
    from kactl.security.access import BrokerPrincipals, Operation, Principal, Resource, ResourceType
    from kactl.security.sasl import Bearer
    from kactl.transports.kafka.listener.authentication import Authentication, ValidateToken
    from kactl.transports.kafka.listener.delegated import DelegatedAuthorizer, Question
    from kactl.transports.kafka.listener.server import ListenerSecurity

    from .embedded_listener import listener

__all__ = [
    "Authentication",
    "Bearer",
    "BrokerPrincipals",
    "DelegatedAuthorizer",
    "Endpoint",
    "ListenerSecurity",
    "Operation",
    "Principal",
    "Question",
    "Resource",
    "ResourceType",
    "ValidateToken",
    "listener",
]

# Imported when first used, as the names of `kactl`.
_HOME = {
    **dict.fromkeys(
        ("BrokerPrincipals", "Operation", "Principal", "Resource", "ResourceType"), "kactl.security.access"
    ),
    **dict.fromkeys(("Authentication", "ValidateToken"), "kactl.transports.kafka.listener.authentication"),
    **dict.fromkeys(("DelegatedAuthorizer", "Question"), "kactl.transports.kafka.listener.delegated"),
    "Bearer": "kactl.security.sasl",
    "Endpoint": "kactl.model",
    "ListenerSecurity": "kactl.transports.kafka.listener.server",
    "listener": "kactl.kafka.embedded_listener",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
