"""The decision about a request, and the sender that it is about."""

from collections.abc import Callable
from typing import Any, NamedTuple

from kactl.model.errors import ErrorCode
from kactl.security.access import CLUSTER, Authorizer, Operation, Principal, Resource, topic

from .field_types import Values
from .responses import result


class Verdict(NamedTuple):
    """The decision about a request.

    Attributes:
        request: what may be carried out; None if nothing may.
        complete: adds the errors of what was denied to a response. Called with {} if nothing was carried out.
    """

    request: dict[str, Any] | None
    complete: Callable[[Values], Values]

    @property
    def denies(self) -> bool:
        """Whether anything is denied."""
        return self.complete is not unchanged


class Peer(NamedTuple):
    """The sender of one request."""

    authorizer: Authorizer
    principal: Principal

    def may(self, operation: Operation, name: str | None = None) -> bool:
        """Returns whether the sender may carry out an operation on a topic, or on the cluster."""
        return self.may_on(operation, CLUSTER if name is None else topic(name))

    def may_on(self, operation: Operation, resource: Resource) -> bool:
        """Returns whether the sender may carry out an operation on a resource."""
        return self.authorizer.allows(self.principal, operation, resource)


def unchanged(response: Values) -> Values:
    """Returns a response as it is."""
    return response


def with_error(code: ErrorCode) -> Callable[[Values], Values]:
    """Returns what makes the response to a request that is denied as a whole."""
    return lambda response: result(code, "")
