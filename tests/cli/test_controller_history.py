"""Times of past controllerships, which stay the same when the server restarts."""

from pathlib import Path

import pytest

from kactl.admin.schema import ControllerInfo, TermInfo

from .server import QUICK, Up

pytestmark = pytest.mark.slow


def terms(up: Up) -> list[TermInfo]:
    return up("controller", "history", "-o", "jsonl").jsonl(TermInfo)


def past(up: Up) -> list[tuple[int, int, int | None, str]]:
    """Returns epoch, beginning, end and cause of all controllerships but the present one."""
    return [(term.epoch, term.began_ms, term.ended_ms, term.cause) for term in terms(up)[:-1]]


def test_past_controllerships_keep_their_times_over_restarts(tmp_path: Path) -> None:
    up = Up(tmp_path, env={**QUICK, "KACTL_LOG__FOLDER": str(tmp_path / "log")})
    try:
        assert up("controller", "resign", "--yes", "--reason", "test").code == 0
        up.until(lambda: up.epoch() == 2 and up.is_ready(), "it is the controller again")
        began = [term.began_ms for term in terms(up)]
        up.process.stop(60)
        up.start()
        stopped = past(up)
        # The election is written while the controller is idle, after which nothing of it is lost.
        log = tmp_path / "log" / "state-change.log"
        up.until(lambda: b'"controller_epoch":3,"what":"elected"' in log.read_bytes(), "the election is in the log")
        up.process.kill()
        up.start()
        killed = past(up)
        up.process.stop(60)
        up.start()
        present = up("get", "controller", "-o", "json").json(ControllerInfo)

        assert [term[1] for term in stopped] == began
        assert killed[: len(stopped)] == stopped
        assert killed[-1][3] == "the instance ended without giving it up"
        assert past(up)[: len(killed)] == killed
        assert terms(up)[-1].began_ms == present.since_ms
    finally:
        up.close()
