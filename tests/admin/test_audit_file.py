"""Files of the audit trail: numbers without gaps, a full disk, and results of `kactl audit verify`."""

import contextlib
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from kactl.admin import audit_trail
from kactl.admin.audit_file import NAME, AuditFile, verify
from kactl.admin.audit_trail import AuditTrail
from kactl.admin.schema import AuditRecord
from kactl.cli.root import kactl
from kactl.model.errors import BadConfig
from tests.admin.conftest import served

pytestmark = pytest.mark.anyio

FIELDS: dict[str, Any] = {
    "time_ms": 1, "node_id": 1, "controller_epoch": 1, "principal": "token:ada", "role": "admin", "peer": "unix",
    "operation": "DELETE /v1/topics/{topic}", "result": "done",
}  # fmt: skip


def line(seq: int, reason: str = "") -> bytes:
    return msgspec.json.encode(AuditRecord(seq=seq, reason=reason, **FIELDS)) + b"\n"


def opened(folder: Path, bytes_max: int = 4096, count_max: int = 3) -> AuditFile:
    return AuditFile(folder, bytes_max=bytes_max, count_max=count_max)


def records(folder: Path) -> list[AuditRecord]:
    return [msgspec.json.decode(each, type=AuditRecord) for each in (folder / NAME).read_bytes().splitlines()]


@contextlib.contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file of this process may become larger."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


# -- files -------------------------------------------------------------------------------------------------------------


def test_numbers_go_on_after_a_restart_and_a_rotation(tmp_path: Path) -> None:
    folder, seq = tmp_path / "audit", 0
    for _ in range(3):
        file = opened(folder)
        assert file.last_seq == seq
        for _ in range(20):
            seq += 1
            file.write(line(seq))
        file.close()

    found = verify(folder)
    assert (found.last, found.problems, found.records) == (60, (), 60 - found.first + 1)
    # The current file is begun with the first record after a rotation, and the last record may have caused one.
    assert {path.name for path in folder.iterdir()} - {NAME} == {f"{NAME}.1", f"{NAME}.2"}
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700


def test_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    file = opened(tmp_path / "audit", bytes_max=1 << 20)
    file.write(line(1))
    size = (tmp_path / "audit" / NAME).stat().st_size
    with full_disk(size + 10), pytest.raises(OSError, match="large"):
        file.write(line(2) + line(3))
    assert (tmp_path / "audit" / NAME).stat().st_size == size

    file.write(line(2) + line(3))

    assert verify(tmp_path / "audit") == (3, 1, 3, ())


async def test_file_that_cannot_be_rotated_grows_without_repetitions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An older file is kept where a folder is in the way."""
    obstacle = tmp_path / f"{NAME}.2"
    obstacle.mkdir()
    (obstacle / "file").touch()
    (tmp_path / f"{NAME}.1").write_bytes(line(1))
    (tmp_path / NAME).write_bytes(line(2))
    trail = AuditTrail(file=opened(tmp_path, bytes_max=100))

    for _ in range(3):
        trail.add(**FIELDS)
        assert await trail.flush()
    obstacle.rename(tmp_path / "elsewhere")
    for _ in range(2):
        trail.add(**FIELDS)
        assert await trail.flush()
    await trail.close()

    assert [record.message for record in caplog.records if "cannot be rotated" in record.message] == [
        f"{tmp_path / NAME} cannot be rotated (Is a directory), and grows: check the folder"
    ]
    found = verify(tmp_path)
    assert (found.first, found.last, found.records, found.problems) == (2, 7, 6, ())


def test_files_behind_a_gap_are_not_moved(tmp_path: Path) -> None:
    """A rotation that has failed on its way leaves one; the next one would otherwise remove a further file."""
    for age, seq in ((3, 1), (2, 2), (0, 3)):
        (tmp_path / (f"{NAME}.{age}" if age else NAME)).write_bytes(line(seq))
    file = opened(tmp_path, bytes_max=100, count_max=4)

    file.write(line(4))
    file.close()

    found = verify(tmp_path)
    assert (found.first, found.last, found.records, found.problems) == (1, 4, 4, ())


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ([line(1), line(3)], "audit.log:2: missing before it: 2"),
        ([line(1), line(9)], "audit.log:2: missing before it: 2 to 8"),
        ([line(4), line(4)], "audit.log:2: 4 follows 4"),
        ([line(4), b"{}\n", line(5)], "audit.log:2: is no record"),
        ([line(4), b"\xff\n", line(5)], "audit.log:2: is no record"),
        ([line(4), line(5)[:-20]], "audit.log:2: is no record"),
    ],
)
def test_what_was_removed_or_changed_is_found(tmp_path: Path, content: list[bytes], problem: str) -> None:
    (tmp_path / NAME).write_bytes(b"".join(content))

    assert verify(tmp_path).problems == (problem,)


def test_folder_without_files_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "kactl.db").touch()

    assert verify(tmp_path) == (0, 0, 0, (f"{tmp_path} contains no {NAME}: name the folder of the audit trail",))


def test_removed_file_is_found(tmp_path: Path) -> None:
    for age, seq in ((2, 1), (0, 3)):
        (tmp_path / (f"{NAME}.{age}" if age else NAME)).write_bytes(line(seq))

    assert verify(tmp_path).problems == ("audit.log:1: missing before it: 2",)


def test_file_that_does_not_end_with_a_record_is_not_continued(tmp_path: Path) -> None:
    opened(tmp_path / "audit").close()
    (tmp_path / "audit" / NAME).write_bytes(line(1) + b"torn")

    with pytest.raises(BadConfig, match="does not end with a record"):
        opened(tmp_path / "audit")


def test_folder_of_others_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    folder.mkdir()
    folder.chmod(0o707)

    with pytest.raises(BadConfig, match="chmod 700"):
        opened(folder)


def removed(folder: Path) -> None:
    (folder / NAME).unlink()


def renamed(folder: Path) -> None:
    (folder / NAME).rename(folder / "elsewhere")


@pytest.mark.parametrize("lose", [removed, renamed])
def test_file_that_is_removed_is_begun_again(
    tmp_path: Path, lose: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    file = opened(tmp_path / "audit")
    file.write(line(1))

    lose(tmp_path / "audit")
    file.write(line(2))

    assert [record.seq for record in records(tmp_path / "audit")] == [2]
    assert "was removed or renamed: the next lines are in a new file" in caplog.text
    file.close()


def test_folder_does_not_follow_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = opened(Path("audit"))
    monkeypatch.chdir("/")

    file.write(line(1))

    assert [record.seq for record in records(tmp_path / "audit")] == [1]
    file.close()


# -- the trail ---------------------------------------------------------------------------------------------------------


async def test_records_that_wait_too_long_are_counted_as_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_trail, "PENDING_MAX", 5)
    trail = AuditTrail(file=opened(tmp_path / "audit"))
    with full_disk(0):
        for _ in range(8):
            trail.add(**FIELDS)
        assert not await trail.flush()

    assert trail.lost == 3
    await trail.close()
    assert verify(tmp_path / "audit") == (5, 4, 8, ())


async def test_each_request_is_in_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    for _ in range(2):  # numbers go on after a restart
        async with served(settings={"audit.folder": str(folder)}) as server:
            await server.post("/v1/topics", {"name": "orders", "partitions": 1, "replication_factor": 1})
            await server.ask("DELETE", "/v1/topics/orders?reason=a+test")
            await server.ask("DELETE", "/v1/topics/orders", headers={"Authorization": "Bearer wrong"})

    assert verify(folder) == (8, 1, 8, ())
    kept = [(each.action or each.operation, each.result, each.reason) for each in records(folder)][:4]
    assert kept == [
        ("create topic", "done", ""),
        ("delete topic", "attempt", "a test"),
        ("delete topic", kept[2][1], "a test"),
        ("DELETE /v1/topics/{topic}", "denied", ""),
    ]


async def test_attempt_is_on_the_disk_before_the_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "audit"
    seen: list[tuple[str, str]] = []
    async with served(settings={"audit.folder": str(folder)}) as server:
        await server.controller.create_topic("orders", partitions=1, replication_factor=1)
        ask = server.controller.ask

        async def asked(*arguments: Any, **named: Any) -> Any:
            seen.extend((each.action, each.result) for each in records(folder))
            return await ask(*arguments, **named)

        monkeypatch.setattr(server.controller, "ask", asked)
        await server.ask("DELETE", "/v1/topics/orders?reason=a+test")

    assert seen[:1] == [("delete topic", "attempt")]


@pytest.mark.parametrize("required", [False, True])
async def test_changes_while_the_file_cannot_be_written(tmp_path: Path, *, required: bool) -> None:
    folder = tmp_path / "audit"
    settings = {"audit.folder": str(folder), "audit.required": required}
    async with served(settings=settings) as server:
        with full_disk(0):
            answer = await server.post("/v1/topics", {"name": "orders", "partitions": 1, "replication_factor": 1})
            known = [topic.name for topic in server.controller.topics()]
            preview = await server.post("/v1/elections", {"type": "preferred", "all": True, "dry_run": True})
        again = await server.post("/v1/topics", {"name": "later", "partitions": 1, "replication_factor": 1})

    assert (answer.status, known) == ((503, []) if required else (201, ["orders"]))
    assert not required or "audit.required" in answer.json()["detail"]
    assert (preview.status, again.status) == (200, 201)
    assert verify(folder).problems == ()
    assert verify(folder).first == 1


async def test_wrong_settings_refuse_to_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="ascii")
    for settings, reason in (
        ({"audit.required": True}, "name audit.folder"),
        ({"audit.folder": str(tmp_path / "file")}, "is not a folder"),
    ):
        with pytest.raises(BadConfig, match=reason):
            async with served(settings=settings):
                raise AssertionError


# -- the command -------------------------------------------------------------------------------------------------------


def test_command_prints_problems_and_fails(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(line(1) + line(2))
    config = tmp_path / "kactl.toml"
    config.write_text(f'node-id = 1\n[audit]\nfolder = "{tmp_path}"\n', encoding="ascii")
    good = CliRunner().invoke(kactl, ["audit", "verify", "--config", str(config)])
    (tmp_path / NAME).write_bytes(line(1) + line(3))
    bad = CliRunner().invoke(kactl, ["audit", "verify", str(tmp_path)])
    no_folder = CliRunner().invoke(kactl, ["audit", "verify"])
    missing = CliRunner().invoke(kactl, ["audit", "verify", str(tmp_path / "none")])

    assert (good.exit_code, "2 records, 1 to 2; 0 problems" in good.stderr) == (0, True)
    assert (bad.exit_code, bad.stdout) == (1, "audit.log:2: missing before it: 2\n")
    assert (no_folder.exit_code, missing.exit_code) == (2, 1)
