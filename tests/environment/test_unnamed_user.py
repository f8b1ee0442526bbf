"""A pod as clusters run it: any user id, no name, no home, a read-only root, one volume, and groups that own it."""

import os
from pathlib import Path

import pytest

from .places import GROUP, USER, Place, require_places
from .service import PATIENCE_S, Service, running

pytestmark = pytest.mark.slow

SECRET = "of the cluster's programs"


def pod(volume: Path, secret: Path) -> Place:
    """Returns where the processes of a pod run; volume and secret belong to one of its groups."""
    return Place(
        process_one=True,
        read_only=True,
        writable=(volume,),
        user=USER,
        groups=(USER, GROUP),
        needed=(secret.parent,),
        environment={"TMPDIR": str(volume)},
    )


def volume_of(folder: Path) -> Path:
    """Returns a new folder that is mounted as a volume."""
    volume = folder / "volume"
    volume.mkdir()
    mount_again(volume)
    return volume


def mount_again(volume: Path) -> None:
    """Change a volume as `fsGroup` does, before each start of a pod: all that is in it belongs to the group."""
    for path in (volume, *volume.rglob("*")):
        os.chown(path, -1, GROUP)
        more = 0o2770 if path.is_dir() else 0o660
        path.chmod(path.stat().st_mode | more)


def secret_of(folder: Path) -> Path:
    """Returns the file of a Secret: root owns it, and the group reads it."""
    file = folder / "secrets" / "network"
    file.parent.mkdir()
    file.write_text(f"{SECRET}\n")
    file.chmod(0o440)
    os.chown(file, 0, GROUP)
    return file


def serve(service: Service) -> None:
    """Start a server and two participants, each in a pod of its own."""
    service.start_server()
    for broker in (1, 2):
        service.start_worker(broker, None, "--secret", SECRET)


def test_pod_without_name_or_home_starts_again_with_its_volume(tmp_path: Path) -> None:
    """Groups and modes of the volume change between its starts."""
    require_places()
    volume, secret = volume_of(tmp_path), secret_of(tmp_path)
    with running(tmp_path, pod(volume, secret), {"KACTL_NETWORK__SECRET_FILE": str(secret)}) as service:
        service.data = volume / "data"
        serve(service)
        service.until_registered(2)
        service.create("jobs", partitions=4, replicas=2)
        service.until_led("jobs", 4, by={1, 2})

        service.server.terminate()
        assert service.server.wait(PATIENCE_S) == 0
        mount_again(volume)
        service.start_server()
        service.create("more", partitions=2)

        service.until(lambda: len(service.leaders("more")) == 2, "the new topic is led")
        assert service.topics() == {"jobs", "more"}


@pytest.mark.parametrize(
    ("command", "code", "error"),
    [
        ("status", 3, "cannot be reached"),
        ("context add mine --server http://127.0.0.1:9", 1, "set HOME or XDG_CONFIG_HOME"),
        ("token create mine --role viewer --config kactl.toml --output mine", 2, "name a folder for secrets"),
        ("doctor --config kactl.toml", 1, "tokens: failed"),
    ],
)
def test_commands_without_a_home_work_or_say_why_not(command: str, code: int, error: str, tmp_path: Path) -> None:
    require_places()
    volume = volume_of(tmp_path)
    config = volume / "kactl.toml"
    config.write_text('node-id = 1\n[store]\nkind = "zookeeper"\nconnect = "127.0.0.1:1"\n')
    with running(tmp_path, Place(user=USER, groups=(USER, GROUP), writable=(volume,), environment={})) as service:
        done = service.kactl(*command.replace("kactl.toml", str(config)).split())

        assert done.code == code, done.text
        (line,) = [line for line in done.text.splitlines() if line.startswith("error: ")]
        assert error in line
