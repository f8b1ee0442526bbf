"""`kactl up` with a network: participants of the same user need no configuration, and an open network is announced."""

from pathlib import Path

import anyio
import pytest

import kactl
from kactl.admin.schema import ControllerInfo

from .server import QUICK, Up

PATIENCE_S = 60


async def _joined(address: str) -> int:
    with anyio.fail_after(PATIENCE_S):
        async with kactl.Participant(9, network=kactl.TcpNetwork(controllers=[address])) as participant:
            return await participant.wait_linked()


def _network_of(up: Up) -> str:
    text = (up.folder / "up.log").read_text()
    return text.split("  network  ", 1)[1].split(" ", 1)[0]


@pytest.mark.slow
def test_participant_of_the_same_user_joins_without_configuration(tmp_path: Path) -> None:
    up = Up(tmp_path, env={**QUICK, "KACTL_NETWORK__LISTEN": "127.0.0.1:0"})
    try:
        assert anyio.run(_joined, _network_of(up)) > 0
        assert up("get", "controller", "-o", "json").json(ControllerInfo).insecure == ()
    finally:
        up.close()


@pytest.mark.slow
def test_network_without_a_place_for_its_secret_is_announced_as_insecure(tmp_path: Path) -> None:
    up = Up(tmp_path, env={**QUICK, "KACTL_NETWORK__LISTEN": "127.0.0.1:0", "XDG_STATE_HOME": "/proc/none"})
    try:
        assert f"insecure: {_network_of(up)} asks for no secret" in (tmp_path / "up.log").read_text()
    finally:
        up.close()
