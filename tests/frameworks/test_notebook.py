"""A cluster in a notebook: objects are made, started and closed in cells of a real kernel."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

pytestmark = [
    pytest.mark.slow,
    # Those of the kernel's client.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PATIENCE_S = 120


class Kernel:
    """A kernel with its client."""

    def __init__(self, manager: KernelManager, client: Any) -> None:
        self._manager = manager
        self._client = client

    def run(self, cell: str) -> str:
        """Returns what a cell prints, or the text of its error."""
        asked = self._client.execute(cell)
        printed = []
        while True:
            message = self._client.get_iopub_msg(timeout=PATIENCE_S)
            if message["parent_header"].get("msg_id") != asked:
                continue
            content = message["content"]
            if message["msg_type"] == "stream" and content["name"] == "stdout":
                printed.append(content["text"])
            elif message["msg_type"] == "error":
                printed.append(f"{content['ename']}: {content['evalue']}")
            elif message["msg_type"] == "status" and content["execution_state"] == "idle":
                return "".join(printed)

    def interrupt(self, cell: str) -> str:
        """Interrupt a cell once it has printed something. Returns the text of its error."""
        # An error would have the kernel abort the cells that are sent next.
        asked = self._client.execute(cell, stop_on_error=False)
        error = ""
        while True:
            message = self._client.get_iopub_msg(timeout=PATIENCE_S)
            if message["parent_header"].get("msg_id") != asked:
                continue
            if message["msg_type"] == "stream":
                self._manager.interrupt_kernel()
            elif message["msg_type"] == "error":
                error = str(message["content"]["ename"])
            elif message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return error


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    manager = KernelManager()
    manager._kernel_spec = KernelSpec(
        argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], language="python"
    )
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE_S)
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


MAKE = """
import anyio, kactl
class Shard(kactl.PartitionHandler):
    async def lead(self, leader):
        await anyio.sleep_forever()
controller = kactl.Controller(0)
node = kactl.Participant(1, network=controller.hub, handler=Shard)
watcher = kactl.Spectator(hub=controller.hub)
await controller.start()
await node.start()
await watcher.start()
print("started")
"""


def test_cluster_lives_from_cell_to_cell(kernel: Kernel) -> None:
    assert kernel.run(MAKE) == "started\n"
    assert kernel.run('await node.ensure_topic("shards", partitions=2, replication_factor=1, wait="led")') == ""
    assert kernel.run('print([view.leader for view in controller.partitions_of("shards")])') == "[1, 1]\n"
    assert kernel.interrupt("print('waits', flush=True); await anyio.sleep_forever()") in (
        "CancelledError",
        "KeyboardInterrupt",
    )
    assert (
        kernel.run("""
while (leader := node.leadership("shards-0")) is None:
    await anyio.sleep(0.05)
print(controller.is_active, leader.is_valid)
""")
        == "True True\n"
    )
    assert kernel.run(MAKE.replace("0)", "5)")) == "started\n"  # run the cell again: the names are bound to others
    assert (
        kernel.run("await watcher.aclose(); await node.aclose(); await controller.aclose(); print('ended')")
        == "ended\n"
    )


def test_block_is_entered_and_left_in_cells(kernel: Kernel) -> None:
    assert kernel.run("import contextlib, kactl; stack = contextlib.AsyncExitStack()") == ""
    assert kernel.run("controller = await stack.enter_async_context(kactl.Controller(0)); print('in')") == "in\n"
    assert kernel.run("await controller.wait_active(); print(controller.is_active)") == "True\n"
    assert kernel.run("await stack.aclose(); print(controller.is_open)") == "False\n"
