"""Participants that start before their controller, and starts that waiting does not help."""

import traceback
from pathlib import Path
from typing import Any

import anyio
import pytest

import kactl
from kactl.model.errors import EndpointUnreachable, KactlError, NotAuthorized, ProtocolMismatch
from kactl.testing.contracts.link_support import until
from tests.support.processes import free_port

from .test_handshake import Pki

pytestmark = pytest.mark.anyio

PATIENCE_S = 120


async def test_participants_start_before_their_controller(caplog: pytest.LogCaptureFixture) -> None:
    """The shortest session is shorter than the time for which the controller is missing."""
    address, epochs = f"127.0.0.1:{free_port()}", list[int]()

    async def participate(broker: int) -> None:
        network = kactl.TcpNetwork(controllers=[address])
        async with kactl.Participant(broker, network=network, session_timeout_ms=2_000) as participant:
            epochs.append(await participant.wait_linked(timeout_ms=PATIENCE_S * 1_000))

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(participate, 1)
            tasks.start_soon(participate, 2)
            await until(lambda: caplog.text.count("is not registered after") >= 2)
            assert f"{address}: Connection refused" in caplog.text

            async with kactl.Controller(100, network=kactl.TcpNetwork(listen=address)):
                await until(lambda: len(epochs) == 2)


@pytest.mark.parametrize("fault", ["secret", "cluster", "authority", "wildcard"])
async def test_fault_of_the_settings_ends_a_start_at_once(fault: str, tmp_path: Path) -> None:
    """Without a time limit, so that only such an error ends it."""
    ours: dict[str, Any] = {"secret": b"0123456789abcdef"}
    theirs = dict(ours)
    if fault == "secret":
        ours["secret"] = b"another secret..."
    elif fault == "cluster":
        ours["cluster"] = "west"
    elif fault == "authority":
        pki = Pki(tmp_path)
        theirs["tls"] = pki.tls("kactl://kactl/controller/100")
        ours["tls"] = pki.tls("kactl://kactl/participant/1", authority=Pki(tmp_path, "other"))
    else:
        ours |= {"listen": "0.0.0.0:0", "allow_plaintext": True}
    async with kactl.Controller(100, network=kactl.TcpNetwork(listen="127.0.0.1:0", **theirs)) as controller:
        assert isinstance(controller.network, kactl.TcpNetwork)
        await controller.wait_active()
        network = kactl.TcpNetwork(controllers=[str(controller.network.address)], **ours)

        with anyio.fail_after(PATIENCE_S), pytest.raises(KactlError) as raised:
            async with kactl.Participant(1, network=network, start_timeout_ms=None):
                pass

    expected = EndpointUnreachable if fault == "wildcard" else NotAuthorized | ProtocolMismatch
    assert isinstance(raised.value, expected)
    assert traceback.format_exception(raised.value) == traceback.format_exception(raised.value, chain=False)
