"""Nodes of the tree as entries of the store: the keys and values of `tests.sim.engine.checkers.events`.

The formats are read here once more, independently of the store's own code.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.sim.engine.stored import Entry

from .tree import Tree

CONTROLLER_EPOCH: Final = "/controller_epoch"
CONTROLLER: Final = "/controller"
BROKERS: Final = "/brokers/ids/"
TOPICS: Final = "/brokers/topics/"
DELETIONS: Final = "/admin/delete_topics/"

# Entries without versions of their own.
PRESENT: Final = 0
ABSENT: Final = -1
_NO_ID: Final = bytes(16).hex()

_ONE: Final = {
    CONTROLLER_EPOCH: "epoch",
    CONTROLLER: "controller",
    "/config/brokers/<default>": "config",
    "/admin/reassign_partitions": "requests/reassignment",
    "/admin/preferred_replica_election": "requests/preferred",
    "/feature": "features",
    "/kactl/maintenance": "maintenance",
    "/latest_producer_id_block": "producer ids",
}
_MANY: Final = {
    BROKERS: "brokers/",
    DELETIONS: "deletions/",
    "/config/topics/": "configs/",
    "/isr_change_notification/": "notifications/",
    "/log_dir_event_notification/": "notifications/",
}


def key_of(path: str) -> str | None:
    """Returns the key of a node; None if it is no entry. The path is relative to the chroot."""
    if path in _ONE:
        return _ONE[path]
    for folder, prefix in _MANY.items():
        if path.startswith(folder):
            return prefix + path[len(folder) :]
    if path.startswith(TOPICS):
        match path[len(TOPICS) :].split("/"):
            case [topic]:
                return f"topics/{topic}"
            case [topic, "partitions", index, "state"]:
                return f"leadership/{topic}/{index}"
    return None


def has_versions(key: str) -> bool:
    """Returns whether the version of a node is the version of the entry."""
    return key.startswith("leadership/")


def value_of(key: str, data: bytes | None, *, created: int, epoch: int) -> dict[str, Any]:
    """Returns the value of an entry.

    Args:
        created: transaction that created the node.
        epoch: controller epoch at this position.
    """
    if key == "epoch":
        return {"epoch": int(data or b"0")}
    node = _json(data)
    if key == "controller":
        return {"id": node["brokerid"], "epoch": epoch}
    if key.startswith("brokers/"):
        return {"epoch": created, **({"evicted": True} if node.get("kactl", {}).get("evicted") else {})}
    if key.startswith("topics/"):
        return topic_value(node)
    if key.startswith("leadership/"):
        return leadership_value(node)
    if key == "config" or key.startswith("configs/"):
        return dict(node.get("config", {}))
    return {} if key.startswith("deletions/") else node


def topic_value(node: Mapping[str, Any]) -> dict[str, Any]:
    adding, removing = node.get("adding_replicas") or {}, node.get("removing_replicas") or {}
    return {
        "id": _id(node.get("topic_id")),
        "partitions": {
            index: [list(replicas), list(adding.get(index, ())), list(removing.get(index, ()))]
            for index, replicas in sorted(node["partitions"].items(), key=lambda item: int(item[0]))
        },
    }


def leadership_value(node: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "leader": node["leader"],
        "leader_epoch": node["leader_epoch"],
        "isr": list(node["isr"]),
        "recovering": bool(node.get("leader_recovery_state", 0)),
        "controller_epoch": node["controller_epoch"],
    }


def _id(text: str | None) -> str:
    return _NO_ID if text is None else base64.urlsafe_b64decode(text + "==").hex()


def _json(data: bytes | None) -> dict[str, Any]:
    return dict(json.loads(data)) if data else {}


def entries(tree: Tree, chroot: str) -> Iterator[tuple[str, Entry]]:
    """Yields the entries of a tree by key, in the order of their paths."""
    epoch_node = tree.nodes.get(chroot + CONTROLLER_EPOCH)
    epoch = 0 if epoch_node is None else int(epoch_node.data or b"0")
    for path, node in sorted(tree.nodes.items()):
        key = key_of(path[len(chroot) :]) if path.startswith(chroot + "/") else None
        if key is None or (key == "producer ids" and node.data is None):
            continue
        version = node.version if has_versions(key) else PRESENT
        yield key, Entry(version, value_of(key, node.data, created=node.czxid, epoch=epoch))
