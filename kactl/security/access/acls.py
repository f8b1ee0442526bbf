"""Kafka's access control lists, and their decision.

An operation is allowed if an entry allows it and none denies it. Entries apply to a resource by its name, by a prefix
of its name, or to all resources of its type. Some operations imply others: reading a topic implies describing it.

Source: Kafka's AclAuthorizer (authorizeAction, matchingAcls), AclEntry.
"""

from collections import defaultdict
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
_SUFFICIENT: Final = {operation: (operation, Operation.ALL, *_IMPLIED_BY.get(operation, ())) for operation in Operation}


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


class _Entries:
    """Entries about resources of one type: those of one principal, or all."""

    def __init__(self) -> None:
        self._literal = defaultdict[str, list[Acl]](list)
        self._prefixed = defaultdict[str, list[Acl]](list)
        self._prefix_lengths: list[int] = []

    def add(self, name: str, acl: Acl, *, is_prefix: bool) -> None:
        (self._prefixed if is_prefix else self._literal)[name].append(acl)
        if is_prefix and len(name) not in self._prefix_lengths:
            self._prefix_lengths.append(len(name))

    def of(self, name: str) -> list[Acl]:
        """Returns the entries that apply to a resource."""
        applying = [*self._literal.get(name, ()), *self._literal.get(_ANY, ())]
        for length in self._prefix_lengths:
            if length <= len(name):
                applying += self._prefixed.get(name[:length], ())
        return applying


def _of_types() -> defaultdict[ResourceType, _Entries]:
    return defaultdict(_Entries)


class Acls:
    """The lists of a cluster. Immutable: a change makes a new object.

    A request may name thousands of topics, so the entries of a principal are found without looking through those of
    others.

    Args:
        literal: the entries of resources by their names; `*` stands for all resources of the type.
        prefixed: the entries of all resources with names that begin so.
    """

    def __init__(
        self,
        literal: Mapping[Resource, Iterable[Acl]] | None = None,
        prefixed: Mapping[Resource, Iterable[Acl]] | None = None,
    ) -> None:
        self._all = _of_types()
        self._of_principal = defaultdict[str, defaultdict[ResourceType, _Entries]](_of_types)
        for is_prefix, lists in ((False, literal), (True, prefixed)):
            for resource, acls in (lists or {}).items():
                for acl in acls:
                    self._all[resource.type].add(resource.name, acl, is_prefix=is_prefix)
                    self._of_principal[acl.principal][resource.type].add(resource.name, acl, is_prefix=is_prefix)

    def __bool__(self) -> bool:
        """Whether there is any entry."""
        return bool(self._all)

    def allow(self, principal: Principal, operation: Operation, resource: Resource, *, if_no_acl: bool = False) -> bool:
        """Returns whether a principal may carry out an operation on a resource.

        Args:
            if_no_acl: the decision if no entry applies to the resource, whomever it concerns.
        """
        sufficient = _SUFFICIENT[operation]
        applies = allowed = False
        for name in (principal.name, _ANY_PRINCIPAL):
            by_type = self._of_principal.get(name)
            if by_type is None or (entries := by_type.get(resource.type)) is None:
                continue
            for acl in entries.of(resource.name):
                applies = True
                if acl.host != principal.peer and acl.host != _ANY:
                    continue
                if acl.is_denial:
                    if acl.operation is operation or acl.operation is Operation.ALL:
                        return False
                elif acl.operation in sufficient:
                    allowed = True
        if applies or not if_no_acl:
            return allowed
        everyone = self._all.get(resource.type)
        return everyone is None or not everyone.of(resource.name)
