"""Files of `[network]` that change while a server runs."""

import logging
from pathlib import Path

import anyio
import pytest

from kactl.cli.network import NetworkFiles, tcp_network
from kactl.config.file import load
from kactl.runtime import reloading

pytestmark = pytest.mark.anyio

SECRET = "a secret of the test, 32 characters"


async def looked_at(files: NetworkFiles, *, failed: bool) -> None:
    """Wait until the files were looked at."""
    with anyio.fail_after(60):
        while files.reload_failed is not failed:  # no event reports it
            reloading.request()
            await anyio.sleep(0.001)


async def test_secret_file_that_vanishes_leaves_the_earlier_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    file.chmod(0o600)
    config = load(None, {}, {"node-id": 1, "network.listen": "127.0.0.1:0", "network.secret-file": str(file)})
    network = tcp_network(config)
    secret, files = network._credentials.secret, NetworkFiles(config, network)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(files.run)
        await anyio.wait_all_tasks_blocked()
        for _ in range(2):  # the second time is a condition of its own
            file.rename(tmp_path / "away")
            await looked_at(files, failed=True)
            assert network._credentials.secret is secret
            (tmp_path / "away").rename(file)
            await looked_at(files, failed=False)
        tasks.cancel_scope.cancel()

    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == 4
    assert "the earlier ones stay in use: network.secret-file: " in lines[0]
    assert "No such file" in lines[0]
    assert lines[1].startswith("the files of [network] can be used again")
