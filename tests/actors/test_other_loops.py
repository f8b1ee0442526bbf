"""A controller that is used from another event loop than its own, as from a thread of the program."""

import threading

import anyio
import pytest

import kactl
from kactl.model.errors import IllegalState

pytestmark = pytest.mark.anyio


async def test_use_from_another_event_loop_is_refused() -> None:
    async with kactl.Controller(1) as controller:
        await controller.wait_active()
        reasons = []

        async def use() -> None:
            for call in (lambda: controller.create_topic("t"), lambda: controller.elect("preferred")):
                with anyio.fail_after(60), pytest.raises(IllegalState) as raised:
                    await call()
                reasons.append(str(raised.value))

        thread = threading.Thread(target=anyio.run, args=(use,))
        thread.start()
        await anyio.to_thread.run_sync(thread.join)

        assert len(reasons) == 2
        assert all("controller runs in another event loop than this call" in reason for reason in reasons)
