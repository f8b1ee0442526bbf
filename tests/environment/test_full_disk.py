"""A volume without space, and a process without descriptors: errors name what is missing, and nothing is lost."""

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from .places import Place, require_places
from .service import PATIENCE_S, running

pytestmark = pytest.mark.slow

VOLUME_KIB = 16_384


@contextlib.contextmanager
def full(volume: Path) -> Iterator[None]:
    """Fill a file system until the block ends."""
    filler = volume / "filler"
    try:
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as sink:
            while sink.write(bytes(65_536)):
                pass
        yield
    finally:
        filler.unlink()


def test_service_continues_when_a_full_volume_has_space_again(tmp_path: Path) -> None:
    require_places()
    volume = tmp_path / "volume"
    volume.mkdir()
    # The volume is mounted in the server's namespace only, where commands do not see its token.
    with running(tmp_path, settings={"KACTL_SECURITY__FOLDER": str(tmp_path / "security")}) as service:
        service.data = volume / "data"
        server = service.start_server(place=Place(small={str(volume): VOLUME_KIB}))
        inside = Path(f"/proc/{server.pid}/root{volume}")
        workers = [service.start_worker(broker, None, "--ensure", "topic") for broker in (1, 2)]
        service.until(lambda: len(service.confirmed()) > 4, "topics are confirmed")

        with full(inside):
            service.until(lambda: any(worker.events("refused") for worker in workers), "a topic is refused")
        before = len(service.confirmed())
        service.until(lambda: len(service.confirmed()) > before + 4, "topics are confirmed again")

        errors = [event["error"] for worker in workers for event in worker.events("refused")]
        assert all("\n" not in error for error in errors)


# Less than an empty store needs, and less than it needs with the first token.
@pytest.mark.parametrize("size_kib", [4, 120])
def test_server_does_not_start_on_a_full_volume(size_kib: int, tmp_path: Path) -> None:
    require_places()
    volume = tmp_path / "volume"
    volume.mkdir()
    with running(tmp_path) as service:
        service.data = volume / "data"
        server = service.start_server(place=Place(small={str(volume): size_kib}), wait=False)

        code = server.wait(PATIENCE_S)

        assert code == 1
        (line,) = server.text.splitlines()
        assert str(volume) in line
        assert "free space" in line


def test_service_continues_when_descriptors_are_free_again(tmp_path: Path) -> None:
    """Those that connected before are served meanwhile."""
    require_places()
    with running(tmp_path) as service:
        server = service.start_server()
        service.start_worker(1, None, "--ensure", "topic")
        service.until(lambda: len(service.confirmed()) > 2, "topics are confirmed")

        with without_descriptors(server.pid):
            late = service.start_worker(2)
            service.until(lambda: bool(late.events("starts")), "the second participant starts")
            before = len(service.confirmed())
            service.until(lambda: len(service.confirmed()) > before + 4, "the first one is served")
            assert not late.events("registered")

        service.until(lambda: bool(late.events("registered")), "the second one is registered")


@contextlib.contextmanager
def without_descriptors(pid: int) -> Iterator[None]:
    """Let a process open no more descriptors until the block ends."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
