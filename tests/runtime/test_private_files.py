"""Own files and folders lose the permissions of their group; those of others, and of all users, are refused."""

import os
import stat
from pathlib import Path

import pytest

from kactl.model.errors import BadConfig
from kactl.runtime.private_files import make_folder, read_private
from kactl.telemetry.state_change_log.segments import open_segments
from tests.support.pods import USER, Pod, needs_pods

KEY = "some.key"


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def file_of(folder: Path, mode: int) -> Path:
    path = folder / "file"
    path.write_bytes(b"content")
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o660, 0o620, 0o670])
def test_own_file_loses_its_groups_permissions(tmp_path: Path, mode: int, caplog: pytest.LogCaptureFixture) -> None:
    path = file_of(tmp_path, mode)

    assert read_private(path, KEY, bytes_max=100) == b"content"

    assert mode_of(path) == 0o600
    assert f"{path}: the permissions of its group were removed (mode 0{mode:o}, now 0600)" in caplog.text


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o666, 0o644])
def test_file_that_all_users_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = file_of(tmp_path, mode)

    with pytest.raises(BadConfig, match=f"others can use {path} .*chmod 600 {path}"):
        read_private(path, KEY, bytes_max=100)

    assert mode_of(path) & 0o007


def test_file_behind_a_link_is_not_changed(tmp_path: Path) -> None:
    path = file_of(tmp_path, 0o660)
    link = tmp_path / "link"
    link.symlink_to(path)

    with pytest.raises(BadConfig, match="chmod 600"):
        read_private(link, KEY, bytes_max=100)

    assert mode_of(path) == 0o660


@pytest.mark.parametrize("mode", [0o770, 0o2770, 0o750])
def test_own_folder_loses_its_groups_permissions(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(mode)

    make_folder(folder, KEY)

    assert mode_of(folder) == 0o700


def test_log_of_state_changes_loses_its_groups_permissions(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "log"
    open_segments(folder, bytes_max=1000, count_max=1).close()
    folder.chmod(0o2770)
    (folder / "state-change.log").chmod(0o660)

    open_segments(folder, bytes_max=1000, count_max=1).close()

    assert (mode_of(folder), mode_of(folder / "state-change.log")) == (0o700, 0o600)


# -- as Kubernetes makes them

READ = """
import sys
from pathlib import Path
from kactl.cli.secret_files import read_secret
from kactl.model.errors import BadConfig
from kactl.runtime.private_files import read_private
for name in sys.argv[1:]:
    try:
        print(read_secret(name, "k").reveal().decode(), read_private(Path(name), "k", bytes_max=99).decode())
    except BadConfig as error:
        print("refused:", error)
"""


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


@needs_pods
@pytest.mark.parametrize("mode", [0o440, 0o640, 0o040])
def test_secret_of_root_for_a_group_of_the_process_is_accepted(pod: Pod, mode: int) -> None:
    password = pod.add_secret("password", "hunter2", mode=mode)

    assert pod.run(READ, password) == "hunter2 hunter2\n"

    assert mode_of(password.resolve()) == mode


@needs_pods
def test_secret_of_root_is_accepted_by_root_in_its_group(tmp_path: Path) -> None:
    pod = Pod(tmp_path, user=0)
    password = pod.add_secret("password", "hunter2")

    assert pod.run(READ, password) == "hunter2 hunter2\n"


@needs_pods
@pytest.mark.parametrize(("mode", "group"), [(0o444, 2_000), (0o460, 2_000), (0o450, 2_000), (0o440, 3_000)])
def test_other_secrets_of_root_are_refused(pod: Pod, mode: int, group: int) -> None:
    """Readable by all users, writable by the group, or readable by another group."""
    password = pod.add_secret("password", "hunter2")
    os.chown(password.resolve(), 0, group)
    password.resolve().chmod(mode)

    said = pod.run(READ, password)

    assert f"refused: k: others can use {password} (mode 0{mode:o})" in said


@needs_pods
def test_secret_of_another_user_is_refused(pod: Pod) -> None:
    password = pod.add_secret("password", "hunter2")
    os.chown(password.resolve(), USER + 1, -1)

    assert f"belongs to user {USER + 1}" in pod.run(READ, password)


STORE = """
import asyncio, sys
from pathlib import Path
from kactl.model.errors import KactlError
from kactl.stores.sqlite import SqliteStore
async def main():
    path = Path(sys.argv[1])
    if path.parent.name == "data":
        path.parent.mkdir(mode=0o700, exist_ok=True)
    try:
        async with SqliteStore(path) as store:
            print("epoch", (await store.contest(1, take_over=True)).epoch)
            if sys.argv[2:]:
                import os
                os._exit(0)  # the log and its index stay
    except KactlError as error:
        print("refused:", error)
asyncio.run(main())
"""


@needs_pods
def test_store_in_a_volume_survives_restarts_of_its_pod(pod: Pod) -> None:
    path = pod.volume / "data" / "kactl.db"
    pod.start()
    assert pod.run(STORE, path, "killed") == "epoch 1\n"

    pod.start()
    assert {mode_of(entry) for entry in path.parent.iterdir()} == {0o660}
    assert pod.run(STORE, path, "killed") == "epoch 2\n"

    assert mode_of(path.parent) == 0o700
    assert {mode_of(entry) for entry in path.parent.iterdir()} == {0o600}


@needs_pods
def test_store_in_a_folder_that_all_users_may_read_survives_restarts(pod: Pod) -> None:
    """As `mkdir` makes it."""
    path = pod.volume / "data" / "kactl.db"
    path.parent.mkdir(mode=0o755)
    os.chown(path.parent, USER, USER)
    pod.start()

    assert pod.run(STORE, path) == "epoch 1\n"

    assert mode_of(path.parent) == 0o755


@needs_pods
def test_store_in_the_root_of_a_volume_is_accepted(pod: Pod) -> None:
    """The root belongs to root, and is shared by the processes of the pod alone."""
    path = pod.volume / "kactl.db"
    for number in (1, 2):
        pod.start()
        assert pod.run(STORE, path, "killed") == f"epoch {number}\n"

    assert mode_of(path) == 0o600


@needs_pods
def test_volume_that_all_users_may_write_is_refused(pod: Pod) -> None:
    pod.volume.chmod(0o777)
    pod.start()

    said = pod.run(STORE, pod.volume / "kactl.db")

    own = pod.volume / "kactl"
    assert f"name a file in a folder of this user's own, such as {own / 'kactl.db'} after: mkdir -m 700 {own}" in said


@needs_pods
def test_shared_folder_that_is_no_volume_is_refused(pod: Pod) -> None:
    folder = pod.volume / "shared"
    folder.mkdir()
    pod.start()

    assert "other users can write its folder" in pod.run(STORE, folder / "kactl.db")


@needs_pods
def test_file_of_root_in_a_volume_is_not_changed(pod: Pod) -> None:
    path = pod.volume / "kactl.db"
    path.touch()
    pod.start()

    assert f"other users can write {path}" in pod.run(STORE, path)

    assert mode_of(path) == 0o664
