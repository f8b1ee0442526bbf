"""Contexts: names for servers with their tokens, in a file that only its owner can read."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from .server import CommandResult, Up, kactl, pipe_of


class Home:
    """A user's configuration folder."""

    def __init__(self, folder: Path) -> None:
        self.env = {"XDG_CONFIG_HOME": str(folder)}
        self.file = folder / "kactl" / "contexts.toml"

    def __call__(
        self, *arguments: str | Path, stdin: int | None = None, env: dict[str, str] | None = None
    ) -> CommandResult:
        return kactl(*arguments, env={**self.env, **(env or {})}, stdin=stdin)

    def add(self, name: str, server: str, *options: str | Path) -> CommandResult:
        return self("context", "add", name, "--server", server, *options)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_context_is_added_used_listed_and_removed(home: Home) -> None:
    assert home("context", "list").err.startswith("There are no contexts")
    assert home("context", "current").code == 1
    assert home.add("prod", "https://kactl1.example:8443", "--origin", "https://kactl2.example:8443").code == 0
    assert home.add("test", "test.example:8080", "--use").code == 0

    assert home("context", "current").out == "test  http://test.example:8080\n"
    assert home("context", "use", "prod").err == "Commands use https://kactl1.example:8443 from now on.\n"
    shown = home("context", "list", "-o", "json").json(list[dict[str, object]])
    assert [(item["name"], item["current"]) for item in shown] == [("prod", True), ("test", False)]
    assert home("context", "remove", "prod").err == "Removed context prod. There is no current context now.\n"
    assert home("context", "remove", "prod").code == 2
    assert home("context", "list").out.splitlines()[1].split() == ["test", "http://test.example:8080", "-"]


def test_file_is_readable_by_its_owner_only(home: Home) -> None:
    with pipe_of("kactl_secret\n") as pipe:
        assert home("context", "add", "prod", "--server", "http://a:1", "--token-stdin", stdin=pipe).code == 0

    assert stat.S_IMODE(home.file.stat().st_mode) == 0o600
    assert "kactl_secret" in home.file.read_text()
    listed = home("context", "list", "-o", "yaml")
    assert "kactl_secret" not in listed.out
    assert "in the context" in listed.out

    home.file.chmod(0o644)
    done = home("context", "list")
    assert done.code == 2
    assert f"it contains tokens: others can use {home.file} (mode 0644): chmod 600 {home.file}" in done.err


@pytest.mark.parametrize("content", ["[contexts", "contexts = 1\n"], ids=["torn", "wrong"])
def test_file_that_is_no_context_file_is_rejected(home: Home, content: str) -> None:
    home.file.parent.mkdir()
    home.file.write_text(content)

    done = home("context", "list")

    assert done.code == 2
    assert f"{home.file}: is not a context file" in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add", "prod", "--server", "http://b:1"], "context 'prod': exists: choose another name"),
        (["add", "new", "--server", "http://b:x"], "'http://b:x' is not a URL"),
        (["add", "new", "--server", "http://b..c:1"], "'http://b..c:1' is not a URL"),
        (["add", "new", "--server", "http://b:1", "--token-file", "gone"], "--token-file: gone cannot be read"),
        (["add", "new", "--server", "http://b:1", "--token-stdin"], "the first line of standard input is empty"),
        (
            ["add", "new", "--server", "http://b:1", "--token-file", "x", "--token-stdin"],
            "either --token-file or --token-stdin",
        ),
        (["add", "new", "--server", "http://b:1", "--key", "x"], "specify --cert with --key"),
        (["use", "new"], "context 'new': there is no such context; known: prod"),
    ],
)
def test_bad_input_changes_nothing(home: Home, arguments: list[str], message: str) -> None:
    home.add("prod", "http://a:1")
    before = home.file.read_bytes()

    done = home("context", *arguments)

    assert done.code == 2
    assert message in done.err
    assert home.file.read_bytes() == before


def test_context_replaces_another_one_with_force(home: Home) -> None:
    home.add("prod", "http://a:1")

    assert home.add("prod", "http://b:1", "--force").code == 0
    assert "http://b:1" in home("context", "list").out


@pytest.mark.parametrize(
    ("options", "env", "server"),
    [
        ([], {}, "http://127.0.0.1:1"),
        (["--context", "second"], {}, "http://127.0.0.1:2"),
        ([], {"KACTL_CONTEXT": "second"}, "http://127.0.0.1:2"),
        ([], {"KACTL_SERVER": "http://127.0.0.1:3", "KACTL_CONTEXT": "second"}, "http://127.0.0.1:3"),
        (["--context", "second"], {"KACTL_SERVER": "http://127.0.0.1:3"}, "http://127.0.0.1:2"),
        (["--server", "http://127.0.0.1:4"], {"KACTL_CONTEXT": "second"}, "http://127.0.0.1:4"),
    ],
)
def test_server_is_chosen_by_options_then_variables_then_the_current_context(
    home: Home, options: list[str], env: dict[str, str], server: str
) -> None:
    home.add("first", "http://127.0.0.1:1", "--use")
    home.add("second", "http://127.0.0.1:2")

    done = home("get", "brokers", *options, env=env)

    assert done.code == 3
    assert f"{server} cannot be reached" in done.err


def test_unknown_and_contradicting_contexts_are_rejected(home: Home) -> None:
    home.add("prod", "http://a:1")

    unknown = home("--context", "prod2", "get", "brokers")
    both = home("get", "brokers", "--context", "prod", "--server", "http://b:1")

    assert (unknown.code, both.code) == (2, 2)
    assert "context 'prod2': there is no such context; known: prod" in unknown.err
    assert "either --server or --context" in both.err


def test_token_of_a_context_identifies_the_client(own_up: Up, home: Home) -> None:
    up = own_up  # failed logins of other tests count against the address
    token = (up.data_dir / "security" / "local.token").read_text()
    for name, text in (("right", token), ("wrong", token[:-2] + "x\n")):
        with pipe_of(text) as pipe:
            home("context", "add", name, "--server", up.url, "--token-stdin", stdin=pipe)

    right, wrong = home("--context", "right", "get", "brokers"), home("--context", "wrong", "get", "brokers")

    assert (right.code, wrong.code) == (0, 1)
    assert "401" in wrong.err


def test_shell_completes_names_of_contexts(home: Home) -> None:
    home.add("prod", "http://a:1")
    home.add("test", "http://a:1")

    done = subprocess.run(
        [sys.executable, "-m", "kactl.cli"],
        env={**home.env, "_KACTL_COMPLETE": "bash_complete", "COMP_WORDS": "kactl --context p", "COMP_CWORD": "2"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "plain,prod\n"
