"""A file that decides about access belongs to this user or to root, and no other user can write it."""

import os
import ssl
from pathlib import Path

import pytest

from kactl.cli.api_client import connected
from kactl.cli.context_file import load as load_contexts
from kactl.cli.exits import Failure
from kactl.config.file import load
from kactl.model.errors import BadConfig
from kactl.runtime.private_files import check_trusted, open_private
from kactl.security.tls.certificate_file import load_authorities, load_pair
from tests.support.certificates import Authority

OTHER = 65_534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a file of another user")


def of(path: Path, user: int = 0, mode: int = 0o644, group: int = 0) -> Path:
    os.chown(path, user, group)
    path.chmod(mode)
    return path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "kactl.toml"
    path.write_text('node-id = 1\n[security]\nallow-insecure = ["api"]\n')
    return path


@needs_root
@pytest.mark.parametrize(
    ("user", "mode", "group", "reason"),
    [
        (OTHER, 0o600, OTHER, "belongs to user 65534"),
        (OTHER, 0o444, 0, "belongs to user 65534"),
        (0, 0o646, 0, "other users can write"),
        (0, 0o664, 1000, "other users can write"),
    ],
)
def test_configuration_that_others_can_change_is_refused(
    config: Path, user: int, mode: int, group: int, reason: str
) -> None:
    of(config, user, mode, group)

    with pytest.raises(BadConfig, match=reason):
        load(config)


@needs_root
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o440, 0o664])
def test_own_configuration_is_read(config: Path, mode: int) -> None:
    assert load(of(config, mode=mode)).node_id == 1


@needs_root
def test_link_of_another_user_is_refused(config: Path) -> None:
    link = config.with_name("link")
    link.symlink_to(config)
    os.chown(link, OTHER, OTHER, follow_symlinks=False)

    with pytest.raises(BadConfig, match="belongs to user 65534"):
        load(link)


@needs_root
def test_named_pipe_of_another_user_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    of(tmp_path / "pipe", OTHER)

    with pytest.raises(BadConfig, match="belongs to user 65534"):
        check_trusted(tmp_path / "pipe", "key")


def test_pipe_of_a_shell_is_read() -> None:
    end, begin = os.pipe()
    with open(begin, "w") as sink:
        sink.write("node-id = 7\n")

    config = load(f"/dev/fd/{end}")

    os.close(end)
    assert config.node_id == 7


@needs_root
def test_configuration_of_root_is_read_by_another_user(config: Path) -> None:
    for place in config.parents:
        place.chmod(place.stat().st_mode | 0o711)
    of(config)

    os.seteuid(OTHER)
    try:
        node_id = load(config).node_id
    finally:
        os.seteuid(0)

    assert node_id == 1


@needs_root
@pytest.mark.parametrize("name", ["ca", "crl", "cert", "key"])
def test_file_of_tls_that_others_can_change_is_refused(tmp_path: Path, name: str) -> None:
    authority = Authority(tmp_path)
    signed = authority.sign("server")
    paths = {"ca": authority.cert, "crl": authority.cert, "cert": signed.cert, "key": signed.key}
    of(paths[name], OTHER, 0o600, OTHER)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)

    def use() -> None:
        if name in ("cert", "key"):
            load_pair(context, str(signed.cert), str(signed.key), "api")
        else:
            load_authorities(context, str(authority.cert), f"api.{name}")

    with pytest.raises(BadConfig, match=f"api.{name}: .*belongs to user 65534"):
        use()


@pytest.mark.parametrize("is_in_one_file", [False, True])
def test_private_key_that_others_can_read_is_refused(tmp_path: Path, is_in_one_file: bool) -> None:
    signed = Authority(tmp_path).sign("server")
    cert, key = signed.cert, signed.key
    if is_in_one_file:
        cert.write_bytes(cert.read_bytes() + key.read_bytes())
        key = cert
    key.chmod(0o644)

    with pytest.raises(BadConfig, match=f"api.key: others can use {key}.*chmod 600"):
        load_pair(ssl.create_default_context(), str(cert), "" if is_in_one_file else str(key), "api")


@needs_root
def test_authority_of_a_command_that_others_can_change_is_refused(tmp_path: Path) -> None:
    ca = of(Authority(tmp_path).cert, OTHER)

    with pytest.raises(Failure, match="belongs to user 65534"), connected("https://127.0.0.1:1", 1, "", str(ca)):
        pass


@needs_root
def test_contexts_of_another_user_are_refused(tmp_path: Path) -> None:
    (tmp_path / "kactl").mkdir()
    path = tmp_path / "kactl" / "contexts.toml"
    path.write_text('current = "a"\n[contexts.a]\nserver = "http://evil.example"\ntoken-file = "/etc/token"\n')
    of(path, OTHER)

    with pytest.raises(Failure, match="belongs to user 65534"):
        load_contexts({"XDG_CONFIG_HOME": str(tmp_path)})


@pytest.mark.parametrize("mode", ["wb", "ab+", "w"])
def test_private_file_is_for_its_owner_alone(tmp_path: Path, mode: str) -> None:
    before = os.umask(0)
    try:
        (tmp_path / "existing").touch(mode=0o666)
        for name in ("existing", "new"):
            with open_private(tmp_path / name, mode):
                pass
    finally:
        os.umask(before)

    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_device_keeps_its_permissions() -> None:
    before = os.stat(os.devnull).st_mode

    with open_private(os.devnull, "wb") as file:
        file.write(b"content")

    assert os.stat(os.devnull).st_mode == before
