"""Kafka's access control lists, and their decision.

An operation is allowed if an entry allows it and none denies it. Entries apply to a resource by its name, by a prefix
of its name, or to all resources of its type. Some operations imply others: reading a topic implies describing it.

Source: Kafka's AclAuthorizer (authorizeAction, matchingAcls), AclEntry.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from .principal import Principal
from .resource import Operation, Resource, ResourceType

_ANY: Final = "*"
_ANY_PRINCIPAL: Final = "User:*"
# An operation is also allowed by an entry that allows one of these.
_IMPLIED_BY: Final = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}


class Acl(NamedTuple):
    """One entry of a list.

    Attributes:
        principal: as in `User:alice`; `User:*` for all.
        host: an address as text; `*` for all.
        operation: Operation.ALL for all.
        is_denial: whether the entry denies the operation. Denials take precedence.
    """

    principal: str
    host: str
    operation: Operation
    is_denial: bool = False

    def concerns(self, principal: Principal, operations: tuple[Operation, ...]) -> bool:
        return (
            self.principal in (principal.name, _ANY_PRINCIPAL)
            and self.host in (principal.peer, _ANY)
            and (self.operation in operations or self.operation is Operation.ALL)
        )


class Acls:
    """The lists of a cluster. Immutable: a change makes a new object.

    Args:
        literal: the entries of resources by their names; `*` stands for all resources of the type.
        prefixed: the entries of all resources with names that begin so.
    """

    def __init__(
        self,
        literal: Mapping[Resource, Iterable[Acl]] | None = None,
        prefixed: Mapping[Resource, Iterable[Acl]] | None = None,
    ) -> None:
        self._literal = {resource: tuple(acls) for resource, acls in (literal or {}).items()}
        self._prefixed = {resource: tuple(acls) for resource, acls in (prefixed or {}).items()}
        self._prefix_lengths: dict[ResourceType, list[int]] = {}
        for resource in self._prefixed:
            lengths = self._prefix_lengths.setdefault(resource.type, [])
            if len(resource.name) not in lengths:
                lengths.append(len(resource.name))

    def __bool__(self) -> bool:
        """Whether there is any entry."""
        return any(self._literal.values()) or any(self._prefixed.values())

    def of(self, resource: Resource) -> list[Acl]:
        """Returns the entries that apply to a resource."""
        applying = [*self._literal.get(resource, ()), *self._literal.get(Resource(resource.type, _ANY), ())]
        for length in self._prefix_lengths.get(resource.type, ()):
            if length <= len(resource.name):
                applying += self._prefixed.get(Resource(resource.type, resource.name[:length]), ())
        return applying

    def allow(self, principal: Principal, operation: Operation, resource: Resource, *, if_no_acl: bool = False) -> bool:
        """Returns whether a principal may carry out an operation on a resource.

        Args:
            if_no_acl: the decision if no entry applies to the resource, whomever it concerns.
        """
        acls = self.of(resource)
        if not acls:
            return if_no_acl
        if any(acl.is_denial and acl.concerns(principal, (operation,)) for acl in acls):
            return False
        sufficient = (operation, *_IMPLIED_BY.get(operation, ()))
        return any(not acl.is_denial and acl.concerns(principal, sufficient) for acl in acls)
