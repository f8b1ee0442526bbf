"""Leader's decision on a write: check it against the tree and describe the change. Nothing is changed here.

Source: PrepRequestProcessor.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from . import access
from .access import Identity
from .codes import ANY_VERSION, EPHEMERAL, SEQUENTIAL, Code, Op, Perm, Refused
from .tree import SPECIAL, AclSet, Change, Checked, Created, DataSet, Deleted, Failed, Tree, split
from .wire import Acl, Request

_NAME_CODES_INVALID: Final = ((0x00, 0x1F), (0x7F, 0x9F), (0xD800, 0xF8FF), (0xFFF0, 0xFFFF))


class _Record(NamedTuple):
    """Values that decide about writes of a node."""

    acl: tuple[Acl, ...]
    owner: int
    version: int
    aversion: int
    creations: int
    children: int


class _View:
    """The tree with the earlier operations of a multi."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._changed: dict[str, _Record | None] = {}

    def __contains__(self, path: str) -> bool:
        if path in self._changed:
            return self._changed[path] is not None
        return path in self._tree.nodes

    def __getitem__(self, path: str) -> _Record:
        """Raises Refused with NO_NODE if there is no such node."""
        if path in self._changed:
            record = self._changed[path]
        elif (node := self._tree.nodes.get(path)) is not None:
            record = _Record(node.acl, node.owner, node.version, node.aversion, node.creations, len(node.children))
        else:
            record = None
        if record is None:
            raise Refused(Code.NO_NODE)
        return record

    def __setitem__(self, path: str, record: _Record | None) -> None:
        self._changed[path] = record


def prepare(tree: Tree, request: Request, session: int, identities: Sequence[Identity]) -> tuple[Change, ...]:
    """Returns the changes of a write: one, or those of a multi. A rejected one is `Failed`."""
    view = _View(tree)
    if request.op != Op.MULTI:
        try:
            return (_PREPARE[request.op](view, request, session, identities),)
        except Refused as refused:
            return (Failed(refused.code),)
    changes: list[Change] = []
    for index, part in enumerate(request.parts):
        try:
            changes.append(_PREPARE[part.op](view, part, session, identities))
        except Refused as refused:
            after = len(request.parts) - index - 1
            return (
                *(Failed(Code.OK) for _ in range(index)),
                Failed(refused.code),
                *(Failed(Code.RUNTIME_INCONSISTENCY) for _ in range(after)),
            )
    return tuple(changes)


def _create(view: _View, request: Request, session: int, identities: Sequence[Identity]) -> Change:
    path, mode = request.path, request.mode
    if not 0 <= mode <= EPHEMERAL | SEQUENTIAL or "/" not in path or "\0" in path:
        raise Refused(Code.BAD_ARGUMENTS)
    acl = access.resolve(request.acl, identities)
    parent, _ = split(path)
    above = view[parent]
    access.check(above.acl, Perm.CREATE, identities)
    if mode & SEQUENTIAL:
        path = f"{path}{above.creations:010d}"
    validate(path)
    if path in view:
        raise Refused(Code.NODE_EXISTS)
    if above.owner:
        raise Refused(Code.NO_CHILDREN_FOR_EPHEMERALS)
    owner = session if mode & EPHEMERAL else 0
    view[parent] = above._replace(creations=above.creations + 1, children=above.children + 1)
    view[path] = _Record(acl, owner, 0, 0, 0, 0)
    return Created(path, request.data, acl, owner, above.creations + 1, request.op)


def _delete(view: _View, request: Request, session: int, identities: Sequence[Identity]) -> Change:
    path = request.path
    if "/" not in path or "\0" in path or path in SPECIAL:
        raise Refused(Code.BAD_ARGUMENTS)
    parent, _ = split(path)
    above = view[parent]
    access.check(above.acl, Perm.DELETE, identities)
    node = view[path]
    _check_version(node.version, request.version)
    if node.children:
        raise Refused(Code.NOT_EMPTY)
    view[parent] = above._replace(children=above.children - 1)
    view[path] = None
    return Deleted(path)


def _set_data(view: _View, request: Request, session: int, identities: Sequence[Identity]) -> Change:
    validate(request.path)
    node = view[request.path]
    access.check(node.acl, Perm.WRITE, identities)
    _check_version(node.version, request.version)
    view[request.path] = node._replace(version=node.version + 1)
    return DataSet(request.path, request.data, node.version + 1)


def _set_acl(view: _View, request: Request, session: int, identities: Sequence[Identity]) -> Change:
    validate(request.path)
    acl = access.resolve(request.acl, identities)
    node = view[request.path]
    access.check(node.acl, Perm.ADMIN, identities)
    _check_version(node.aversion, request.version)
    return AclSet(request.path, acl, node.aversion + 1)


def _check(view: _View, request: Request, session: int, identities: Sequence[Identity]) -> Change:
    validate(request.path)
    node = view[request.path]
    access.check(node.acl, Perm.READ, identities)
    _check_version(node.version, request.version)
    return Checked(request.path)


_PREPARE: Final[dict[Op, Callable[[_View, Request, int, Sequence[Identity]], Change]]] = {
    Op.CREATE: _create,
    Op.CREATE_2: _create,
    Op.DELETE: _delete,
    Op.SET_DATA: _set_data,
    Op.SET_ACL: _set_acl,
    Op.CHECK: _check,
}


def _check_version(version: int, expected: int) -> None:
    if expected not in (ANY_VERSION, version):
        raise Refused(Code.BAD_VERSION)


def validate(path: str) -> None:
    """Raises Refused with BAD_ARGUMENTS if a path is malformed. Source: PathUtils.validatePath."""
    if not path.startswith("/"):
        raise Refused(Code.BAD_ARGUMENTS)
    if path == "/":
        return
    if any(part in ("", ".", "..") for part in path[1:].split("/")):
        raise Refused(Code.BAD_ARGUMENTS)
    if not path.isascii() or not path.isprintable():
        for sign in path:
            # Java counts characters beyond the first plane as two, both in a range that is rejected.
            if ord(sign) > 0xFFFF or any(first <= ord(sign) <= last for first, last in _NAME_CODES_INVALID):
                raise Refused(Code.BAD_ARGUMENTS)
