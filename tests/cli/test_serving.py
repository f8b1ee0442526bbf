"""Whole servers, in this process."""

import gc
from pathlib import Path

import pytest

from kactl.cli.serving import embedded
from kactl.config_file import load
from tests.clocks import settle

pytestmark = pytest.mark.anyio


async def test_a_server_collects_garbage_between_events_and_nobody_else_does(tmp_path: Path) -> None:
    config = load(
        None,
        {},
        {
            "node-id": 0,
            "participants.count": 1,
            "api.listen": "127.0.0.1:0",
            "store.path": str(tmp_path / "kactl.db"),
            "store.session-timeout": "4s",
        },
    )

    async with embedded(config, note=lambda text: None):
        await settle()
        assert not gc.isenabled()

    assert gc.isenabled()
