"""Creation of the nodes that must exist before anything is watched, as brokers create them at startup.

Source: KafkaZkClient.createTopLevelPaths, createOrGetClusterId.
"""

import base64
import random
import uuid

from kazoo.exceptions import NodeExistsError, ZookeeperError

from kactl.model.errors import StoreError
from kactl.stores.formats import records

from . import layout, request
from .client import Client


async def make(client: Client, cluster_id: bytes) -> bytes:
    """Create the chroot, the top-level nodes of brokers, and the cluster id, so that kactl may start before the
    brokers. Returns the content of the cluster id's node, which is `cluster_id` only if there was none.
    """
    names = client.chroot.split("/")[1:]
    chroot = ["/" + "/".join(names[:depth]) for depth in range(1, len(names) + 1)]
    responses = await client.ask_all(
        [
            *(request.create(path, None, acls=client.acls.of("")) for path in chroot),
            *(client.create(path, None) for path in layout.PERSISTENT),
            client.create(layout.CLUSTER_ID, cluster_id),
        ]
    )
    for result, path in zip(responses.results, [*chroot, *layout.PERSISTENT, layout.CLUSTER_ID], strict=True):
        if isinstance(result, ZookeeperError) and not isinstance(result, NodeExistsError):
            raise StoreError(f"{path} could not be created in ZooKeeper: {result!r}")
    if not isinstance(responses.results[-1], NodeExistsError):
        return cluster_id
    stored = await client.ask(client.get(layout.CLUSTER_ID))
    return cluster_id if isinstance(stored, ZookeeperError) else stored[0]


def new_cluster_id(rng: random.Random) -> bytes:
    """Returns the content of the cluster id's node for a new cluster."""
    number = uuid.UUID(bytes=rng.randbytes(16), version=4).bytes
    return records.encode_cluster_id(base64.urlsafe_b64encode(number).decode().rstrip("="))
