"""`kactl kafka-user`: the file of users, without a password in it or in the arguments."""

import stat
from pathlib import Path

import pytest

from kactl.cli.exits import Exit
from kactl.cli.kafka_user import UserInfo
from kactl.config.file import load
from kactl.model.errors import BadConfig
from kactl.security.sasl import verifier
from kactl.transports.kafka.listener.user_file import read_users
from tests.cli.server import CommandResult, kactl

PASSWORD = "correct horse"


class Users:
    """A file of users, and a password in another file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "kactl" / "users.json"
        self.password = folder / "password"
        self.enter(PASSWORD)

    def enter(self, password: str) -> None:
        self.password.write_text(f"{password}\n")
        self.password.chmod(0o600)

    def __call__(self, command: str, *arguments: str | Path) -> CommandResult:
        return kactl("kafka-user", command, *arguments, "--users", self.file)

    def add(self, name: str, *options: str) -> CommandResult:
        return self("add", name, "--password-file", self.password, *options)


@pytest.fixture
def users(tmp_path: Path) -> Users:
    return Users(tmp_path)


def test_user_is_added_listed_and_removed(users: Users) -> None:
    added = users.add("ops")
    other = users.add("ci", "--mechanism", "SCRAM-SHA-256", "--mechanism", "SCRAM-SHA-512", "--iterations", "4096")
    assert [added.code, other.code] == [Exit.DONE, Exit.DONE], added.err + other.err
    assert added.err == "User:ops can log in by SCRAM-SHA-512.\n"

    ops = read_users(users.file)["ops"].verifiers["SCRAM-SHA-512"]
    assert ops == verifier("SCRAM-SHA-512", PASSWORD, salt=ops.salt, iterations=8192)
    assert users("list", "-o", "jsonl").jsonl(UserInfo) == [
        UserInfo(name="ci", mechanisms=("SCRAM-SHA-256", "SCRAM-SHA-512"), iterations=(4096, 4096)),
        UserInfo(name="ops", mechanisms=("SCRAM-SHA-512",), iterations=(8192,)),
    ]
    assert users("list").out.splitlines()[2].split() == ["ops", "SCRAM-SHA-512", "8192"]

    assert users("remove", "ci", "ops").err == "Removed ci, ops.\n"
    assert read_users(users.file) == {}


def test_files_are_private_and_have_no_password(users: Users) -> None:
    users.add("ops")

    assert [stat.S_IMODE(path.stat().st_mode) for path in (users.file, users.file.parent)] == [0o600, 0o700]
    assert PASSWORD not in users.file.read_text()


def test_user_that_exists_keeps_its_password_unless_it_is_replaced(users: Users) -> None:
    users.add("ops")
    before = users.file.read_bytes()
    users.enter("another password")

    refused = users.add("ops")

    assert refused.code == Exit.FAILED
    assert "--replace" in refused.err
    assert users.file.read_bytes() == before

    assert users.add("ops", "--replace").code == Exit.DONE
    ops = read_users(users.file)["ops"].verifiers["SCRAM-SHA-512"]
    assert ops == verifier("SCRAM-SHA-512", "another password", salt=ops.salt, iterations=8192)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("add", "ops"), "--password-file"),  # no terminal
        (("add", "a\nb"), "printable characters"),
        (("remove", "ops2", "none"), "none: there is no such user"),
        (("add", "x", "--password-file", "/none"), "/none cannot be read"),
        (("add", "x", "--mechanism", "PLAIN"), "PLAIN"),
    ],
)
def test_bad_input_changes_nothing(users: Users, arguments: tuple[str, ...], text: str) -> None:
    users.add("other")
    users.add("ops2")
    before = users.file.read_bytes()

    refused = users(*arguments)

    assert refused.code != Exit.DONE
    assert text in refused.err
    assert users.file.read_bytes() == before


def test_password_in_a_file_that_others_can_read_is_refused(users: Users) -> None:
    users.password.chmod(0o644)

    refused = users.add("ops")

    assert refused.code == Exit.USAGE
    assert "chmod 600" in refused.err
    assert not users.file.exists()


def test_damaged_file_is_not_overwritten(users: Users) -> None:
    users.file.parent.mkdir()
    users.file.write_text("{")
    users.file.chmod(0o600)

    refused = users.add("ops")

    assert refused.code == Exit.USAGE
    assert "is not a file of users: line 1" in refused.err
    assert users.file.read_text() == "{"


def test_file_is_found_by_the_configuration(users: Users, tmp_path: Path) -> None:
    config = tmp_path / "kactl.toml"
    listener = 'listeners = ["X://127.0.0.1:9190"]\n[kafka.protocols]\nX = "SASL_PLAINTEXT"\n'
    store = '[store]\nkind = "zookeeper"\nconnect = "127.0.0.1:2181"\n'
    config.write_text(f'node-id = 9\n{store}[kafka]\nusers = "{users.file}"\n{listener}')
    added = kactl("kafka-user", "add", "ops", "--config", config, "--password-file", users.password)
    assert added.code == Exit.DONE, added.err
    assert list(read_users(users.file)) == ["ops"]

    config.write_text(f"node-id = 9\n{store}[kafka]\n{listener}")
    missing = kactl("kafka-user", "list", "--config", config)
    assert missing.code == Exit.USAGE
    assert "kafka.users is not set" in missing.err


def test_file_without_logins_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"kafka\.users: has no effect without logins"):
        load(None, {}, {"node-id": 9, "kafka.users": str(tmp_path / "users.json")})
