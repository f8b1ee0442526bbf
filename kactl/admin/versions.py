"""Versions of resources: `ETag` of reads, `If-Match` and `expected_controller_epoch` of writes.

The version is that of the store if it has one: a partition's epoch, a broker's registration, the controller's epoch.
A topic's version is derived from its id, assignment and overrides. A resource without a version of its own is guarded
by the controller's epoch.

A precondition is checked just before the request is executed: requests with `If-Match` to the same path are serialised,
so of two requests with the same version one fails. Concurrent changes by others, such as Kafka's own tools, are not
detected.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final

import msgspec
from aiohttp import web

from kactl.model import TopicPartition
from kactl.model.errors import ErrorCode, StaleEpoch, StoreUnavailable

from . import problem
from .service import Service
from .tallies import text_of_id

EPOCH: Final = "expected_controller_epoch"
# Maximum number of versions in one header; a longer list is not a meaningful precondition.
_VERSIONS_MAX: Final = 20
_DIGEST_BYTES: Final = 8

Version = Callable[[Service, Any], Awaitable[str | None]]


async def of_controller(service: Service, path: Any) -> str | None:
    """Returns the controller's epoch."""
    return f'"{service.controller.cluster.fence.epoch}"'


async def of_broker(service: Service, path: Any) -> str | None:
    """Returns the epoch of a broker's registration; None if it is not registered."""
    known = service.cluster.brokers.get(path.id)
    return None if known is None else f'"{known.epoch}"'


async def of_topic(service: Service, path: Any) -> str | None:
    """Returns a digest of a topic's id, assignment and overrides; None if it is unknown or cannot be read."""
    cluster = service.cluster
    known = cluster.table.topic(path.topic)
    if known is None:
        return None
    rows = cluster.table.rows(cluster.table.rows_of(known))
    try:
        config = (await service.controller.store.topic_configs([path.topic])).get(path.topic)
    except StoreUnavailable:
        config = None
    if config is None:
        return None
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    deleting = path.topic in cluster.topics_to_delete
    digest.update(msgspec.json.encode((sorted(config.items()), deleting)))
    for column in (rows.replicas, rows.assigned, rows.adding, rows.removing):
        digest.update(column.tobytes())
    return f'"{text_of_id(known.ref.id) or path.topic}:{digest.hexdigest()}"'


async def of_partition(service: Service, path: Any) -> str | None:
    """Returns the epoch and assignment of a partition; None if it is unknown."""
    view = service.cluster.view(TopicPartition(path.topic, path.partition))
    if view is None:
        return None
    known = service.cluster.table.topic(path.topic)
    id_ = None if known is None else text_of_id(known.ref.id)
    epoch = -1 if view.leadership is None else view.leadership.partition_epoch
    parts = (view.replicas, view.adding, view.removing)
    return f'"{id_ or path.topic}:{epoch}:{":".join(",".join(map(str, part)) for part in parts)}"'


def lock_of(service: Service, http: web.Request) -> asyncio.Lock | None:
    """Returns the lock held while a precondition is checked and the request executed; None without a precondition."""
    if "If-Match" not in http.headers:
        return None
    lock = service.conditional.get(http.path)
    if lock is None:
        lock = service.conditional[http.path] = asyncio.Lock()
    return lock


def check_read(http: web.Request, present: str | None, *, has_version: bool) -> None:
    """Reject a read if its `If-Match` does not hold, or the resource has no version.

    Raises:
        Refused: 412, or 501.
    """
    if "If-Match" not in http.headers:
        return
    if not has_version:
        raise problem.of_header(
            "If-Match",
            "this resource has no version: send the request without it",
            status=HTTPStatus.NOT_IMPLEMENTED,
            title="Not implemented",
            code=ErrorCode.UNSUPPORTED_VERSION,
        )
    wanted = _wanted(http)
    if not _holds(wanted, present):
        raise _mismatch(present, is_epoch=False)


async def check(service: Service, http: web.Request, version: Version, path: Any, expected_epoch: int | None) -> None:
    """Reject a write if its precondition does not hold.

    Raises:
        Refused, StaleEpoch: 412; nothing was changed.
        NotController: only the controller knows versions.
    """
    if expected_epoch is None and "If-Match" not in http.headers:
        return
    service.require_active()
    present_epoch = service.controller.cluster.fence.epoch
    if expected_epoch is not None and expected_epoch != present_epoch:
        raise StaleEpoch(EPOCH, expected=expected_epoch, present=present_epoch)
    wanted = _wanted(http)
    if not wanted:
        return
    present = await version(service, path)
    if not _holds(wanted, present):
        raise _mismatch(present, is_epoch=version is of_controller)


def _wanted(http: web.Request) -> list[str]:
    """Returns the versions of `If-Match`."""
    wanted = [tag.strip() for field in http.headers.getall("If-Match", []) for tag in field.split('",')]
    return [tag if tag.endswith('"') or tag == "*" else f'{tag}"' for tag in wanted]


def _holds(wanted: list[str], present: str | None) -> bool:
    return len(wanted) <= _VERSIONS_MAX and present is not None and ("*" in wanted or present in wanted)


def _mismatch(present: str | None, *, is_epoch: bool) -> problem.Refused:
    mismatch = "the resource does not exist" if present is None else f"the present version is {present}"
    refused = problem.of_header(
        "If-Match",
        f"{mismatch}: read the resource again, then retry with its ETag",
        status=HTTPStatus.PRECONDITION_FAILED,
        title="Precondition failed",
        code=ErrorCode.STALE_CONTROLLER_EPOCH if is_epoch else ErrorCode.INVALID_UPDATE_VERSION,
    )
    if present is not None:
        refused.headers["ETag"] = present
    return refused
