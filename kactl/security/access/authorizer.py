"""The decisions of a listener that authenticates its peers."""

import re
from collections.abc import Collection, Mapping
from typing import Final, Protocol

from .acls import Acls
from .principal import Principal
from .resource import CLUSTER, Operation, Resource

_ID: Final = "{id}"
_INT32_MAX: Final = 2**31 - 1


class Authorizer(Protocol):
    """Decides about operations, and which principals are brokers."""

    def allows(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        """Returns whether a principal may carry out an operation on a resource."""

    def may_speak_for(self, principal: Principal, broker: int) -> bool:
        """Returns whether a principal may send the requests of a broker."""


class BrokerPrincipals:
    """The principals of brokers.

    Args:
        names: the principal of each broker, by its id.
        pattern: the principal of a broker with `{id}` in the place of its id, for brokers that are not in `names`.
    """

    def __init__(self, names: Mapping[int, str] | None = None, pattern: str | None = None) -> None:
        self._names = dict(names or {})
        self._pattern = None
        if pattern is not None:
            before, _, behind = pattern.partition(_ID)
            self._pattern = re.compile(f"{re.escape(before)}(0|[1-9][0-9]{{0,9}}){re.escape(behind)}")

    def __bool__(self) -> bool:
        return bool(self._names) or self._pattern is not None

    def owns(self, name: str, broker: int) -> bool:
        """Returns whether a principal is that broker's."""
        if broker in self._names:
            return self._names[broker] == name
        matched = None if self._pattern is None else self._pattern.fullmatch(name)
        return matched is not None and int(matched[1]) == broker

    def contains(self, name: str) -> bool:
        """Returns whether a principal is a broker's."""
        if name in self._names.values():
            return True
        matched = None if self._pattern is None else self._pattern.fullmatch(name)
        return matched is not None and int(matched[1]) <= _INT32_MAX and int(matched[1]) not in self._names


class AclAuthorizer:
    """Super users may do everything, brokers their own requests, and others the operations that ACLs allow.

    Args:
        super_users: names of principals.
        brokers: the principals of brokers. Without any, each principal with ClusterAction may speak for every broker.
        if_no_acl: whether an operation is allowed on resources to which no ACL applies; brokers call it
            `allow.everyone.if.no.acl.found`.

    Attributes:
        acls: the lists; None while they cannot be read, and then only super users and brokers are allowed anything.
    """

    def __init__(
        self,
        *,
        super_users: Collection[str] = (),
        brokers: BrokerPrincipals | None = None,
        if_no_acl: bool = False,
        acls: Acls | None = None,
    ) -> None:
        self._super_users = frozenset(super_users)
        self._brokers = brokers or BrokerPrincipals()
        self._if_no_acl = if_no_acl
        self.acls = acls

    def allows(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        if principal.name in self._super_users:
            return True
        if operation is Operation.CLUSTER_ACTION and resource == CLUSTER and self._brokers.contains(principal.name):
            return True
        return self.acls is not None and self.acls.allow(principal, operation, resource, if_no_acl=self._if_no_acl)

    def may_speak_for(self, principal: Principal, broker: int) -> bool:
        if self._brokers:
            return self._brokers.owns(principal.name, broker)
        return self.allows(principal, Operation.CLUSTER_ACTION, CLUSTER)
