"""`kactl token`, and which credential a command presents to which server."""

import errno
import http.server
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kactl.admin.identity import run_file
from kactl.admin.identity.token_file import read_tokens
from kactl.cli.credentials import Credential, find, origin
from kactl.cli.exits import Exit, Failure
from kactl.cli.token import TokenInfo
from kactl.runtime import private_files
from tests.cli.server import Up, kactl
from tests.support import api_access
from tests.support.processes import free_port


def private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def listed(tokens: Path) -> list[TokenInfo]:
    return kactl("token", "list", "--tokens", tokens, "-o", "jsonl").jsonl(TokenInfo)


# -- the token file ----------------------------------------------------------------------------------------------------


def test_token_is_written_to_a_private_file_and_its_hash_to_the_token_file(tmp_path: Path) -> None:
    tokens, file = tmp_path / "security" / "tokens.toml", tmp_path / "grafana.token"
    made = kactl("token", "create", "grafana", "--role", "viewer", "--tokens", tokens, "--output", file,
                 "--networks", "10.0.0.0/8", "--expires", "30d")  # fmt: skip

    assert made.code == Exit.DONE, made.err
    text = file.read_text().strip()
    assert text not in made.out + made.err
    assert api_access.secret_of(text) not in tokens.read_text()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, tokens, tokens.parent)] == [0o600, 0o600, 0o700]
    (record,) = read_tokens(tokens)
    assert (record.name, record.role.label, [*map(str, record.networks)]) == ("grafana", "viewer", ["10.0.0.0/8"])
    assert record.expires_ms is not None
    assert record.expires_ms - record.created_ms == 30 * 86_400_000
    assert f"kactl_{record.id}_" in text


def test_token_is_not_printed_where_others_could_read_it(tmp_path: Path) -> None:
    refused = kactl("token", "create", "x", "--role", "viewer", "--tokens", tmp_path / "tokens.toml")

    assert refused.code == Exit.USAGE
    assert "--output FILE" in refused.err
    assert not (tmp_path / "tokens.toml").exists()


def test_rotated_token_overlaps_with_its_successor(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    kactl("token", "create", "ci", "--role", "operator", "--tokens", tokens, "--output", tmp_path / "1")
    (old,) = read_tokens(tokens)

    rotated = kactl("token", "rotate", "ci", "--overlap", "1h", "--tokens", tokens, "--output", tmp_path / "2")

    assert rotated.code == Exit.DONE, rotated.err
    before, after = read_tokens(tokens)
    assert before.id == old.id
    assert before.expires_ms == after.created_ms + 3_600_000
    assert (after.name, after.role) == ("ci", old.role)
    assert after.expires_ms is not None
    assert after.expires_ms - after.created_ms == 90 * 86_400_000


def test_revoked_token_is_removed(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    for name in ("a", "b"):
        kactl("token", "create", name, "--role", "viewer", "--tokens", tokens, "--output", tmp_path / name)
    first, second = listed(tokens)

    assert kactl("token", "revoke", first.id, "--tokens", tokens).code == Exit.DONE
    assert listed(tokens) == [second]
    unknown = kactl("token", "revoke", first.id, second.id, "--tokens", tokens)
    assert unknown.code == Exit.FAILED
    assert listed(tokens) == [second]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["create", "a b", "--role", "viewer"], "cannot be used"),
        (["create", "x", "--role", "root"], "root"),
        (["create", "x", "--role", "viewer", "--expires", "never"], "is not a duration"),
        (["create", "x", "--role", "viewer", "--expires", "0d"], "is no time at all"),
        (["create", "x", "--role", "viewer", "--networks", "everywhere"], "is not a network"),
        (["rotate", "x"], "--tokens: there is no file"),
        (["revoke", "x"], "--tokens: there is no file"),
    ],
)
def test_invalid_arguments_change_nothing(tmp_path: Path, arguments: list[str], reason: str) -> None:
    tokens = tmp_path / "tokens.toml"
    more = [] if arguments[0] == "revoke" else ["--output", str(tmp_path / "out")]

    refused = kactl("token", *arguments, *more, "--tokens", tokens)

    assert refused.code in (Exit.USAGE, Exit.FAILED)
    assert reason in refused.err
    assert not (tmp_path / "out").exists()
    assert not tokens.exists()


def test_token_that_does_not_exist_changes_nothing(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    kactl("token", "create", "x", "--role", "viewer", "--tokens", tokens, "--output", tmp_path / "x")
    before = tokens.read_text()

    rotated = kactl("token", "rotate", "y", "--tokens", tokens, "--output", tmp_path / "y")
    revoked = kactl("token", "revoke", "y", "--tokens", tokens)

    assert [(result.code, result.err) for result in (rotated, revoked)] == [
        (Exit.FAILED, "error: y: there is no such token: see `kactl token list`\n")
    ] * 2
    assert tokens.read_text() == before


def test_missing_token_file_is_not_an_empty_list(tmp_path: Path) -> None:
    listed_ = kactl("token", "list", "--tokens", tmp_path / "typo.toml")

    assert (listed_.code, listed_.out) == (Exit.USAGE, "")
    assert f"there is no file {tmp_path / 'typo.toml'}" in listed_.err


@pytest.mark.parametrize("place", ["missing/folder", "existing", "folder"])
def test_no_token_is_made_that_cannot_be_stored(tmp_path: Path, place: str) -> None:
    private(tmp_path / "existing", "another token\n")
    (tmp_path / "folder").mkdir()
    tokens = tmp_path / "tokens.toml"

    refused = kactl("token", "create", "x", "--role", "viewer", "--tokens", tokens, "--output", tmp_path / place)

    assert refused.code == Exit.USAGE
    assert f"--output: {tmp_path / place}" in refused.err
    assert not tokens.exists()
    assert (tmp_path / "existing").read_text() == "another token\n"


def test_token_is_withdrawn_if_it_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, file, file2 = tmp_path / "tokens.toml", tmp_path / "ci.token", tmp_path / "x.token"
    kactl("token", "create", "ci", "--role", "operator", "--tokens", tokens, "--output", file)
    before, secret = listed(tokens), file.read_text()
    write = private_files.write_private

    def full(path: Path, content: bytes) -> None:
        if path in (file, file2):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, content)

    monkeypatch.setattr(private_files, "write_private", full)
    failed = kactl("token", "rotate", "ci", "--tokens", tokens, "--output", file)

    first = kactl("token", "create", "x", "--role", "viewer", "--tokens", tmp_path / "new.toml", "--output", file2)

    assert failed.code == first.code == Exit.FAILED
    assert f"error: --output: {file}: No space left on device" in failed.err
    assert (listed(tokens), file.read_text()) == (before, secret)
    assert not (tmp_path / "new.toml").exists()


def test_name_is_used_once(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    arguments = ("token", "create", "x", "--role", "viewer", "--tokens", tokens, "--output")
    assert kactl(*arguments, tmp_path / "1").code == Exit.DONE
    assert "kactl token rotate x" in kactl(*arguments, tmp_path / "2").err


def test_token_file_that_others_can_read_is_an_error(tmp_path: Path) -> None:
    tokens = private(tmp_path / "tokens.toml", "")
    tokens.chmod(0o644)

    refused = kactl("token", "list", "--tokens", tokens)

    assert refused.code == Exit.USAGE
    assert f"chmod 600 {tokens}" in refused.err


# -- with a server -----------------------------------------------------------------------------------------------------


def test_token_of_a_running_server_permits_what_its_role_permits(up: Up, tmp_path: Path) -> None:
    file = tmp_path / "viewer.token"
    assert up("token", "create", f"viewer-{os.getpid()}", "--role", "viewer", "--output", file).code == Exit.DONE

    def status() -> int:
        return up("status", "--token-file", file).code

    up.until(lambda: status() != Exit.FAILED, "the server knows the token")
    refused = up("topic", "create", "by-a-viewer", "--token-file", file)

    assert status() == Exit.DONE
    assert refused.code == Exit.FAILED
    assert "this needs the role admin" in refused.err


def test_commands_of_another_user_need_a_token(own_up: Up, tmp_path: Path) -> None:
    # Not the shared one: after ten failures of other tests it answers differently.
    refused = kactl("--server", own_up.url, "status", env={"XDG_STATE_HOME": str(tmp_path)})

    assert refused.code == Exit.FAILED
    assert f"401: {own_up.url} requires a token: give --token-file, or run as the user who started kactl" in refused.err


def test_rejected_token_is_not_reported_as_missing(own_up: Up, tmp_path: Path) -> None:
    rejected = kactl("--server", own_up.url, "status", "--token-file", private(tmp_path / "token", "unknown\n"))

    assert rejected.code == Exit.FAILED
    assert f"401: {own_up.url} rejects the token: it is unknown, expired, revoked" in rejected.err


def test_up_says_how_to_get_in(up: Up) -> None:
    assert f"Authorization: Bearer $(cat {up.data_dir}/security/local.token)" in up.process.text


# -- which credential --------------------------------------------------------------------------------------------------


def test_first_of_the_places_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = "http://127.0.0.1:8099"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    files = {name: str(private(tmp_path / name, f"{name}\n")) for name in ("option", "variable", "context", "run")}
    contexts = tmp_path / "kactl" / "contexts.toml"
    contexts.parent.mkdir()
    contexts.write_text(f'[contexts.x]\nserver = "{server}"\ntoken-file = "{files["context"]}"\n')
    run = run_file.RunFile(url=server, pid=1, token_file=files["run"])
    run_file.write(run_file.run_folder(), run_file.base_name("127.0.0.1", 8099), run)
    env = {"KACTL_TOKEN_FILE": files["variable"], "KACTL_TOKEN": "text", "XDG_CONFIG_HOME": str(tmp_path)}
    found = [find(server, files["option"], None, env).token]
    while env:
        found.append(find(server, None, None, env).token)
        env.pop(next(iter(env)))
    found.append(find(server, None, None, {"XDG_CONFIG_HOME": str(tmp_path / "nowhere")}).token)

    assert found == ["option", "variable", "text", "context", "run"]
    assert find("http://127.0.0.1:8098", None, None, {"XDG_CONFIG_HOME": str(tmp_path)}) == Credential()


def test_named_file_has_to_be_private(tmp_path: Path) -> None:
    file = private(tmp_path / "token", "x\n")
    file.chmod(0o644)
    with pytest.raises(Failure, match="chmod 600"):
        find("http://127.0.0.1:1", str(file), None, {})


@pytest.mark.parametrize("token", ["two\nlines", "\u6f22\u5b57", "t\u00f6ken", "a\x00b"])
def test_token_that_no_header_can_hold_is_refused_unseen(token: str, tmp_path: Path) -> None:
    by_variable = kactl("--server", "http://127.0.0.1:1", "status", env={"KACTL_TOKEN": token.replace("\x00", "\x01")})

    assert by_variable.code == Exit.USAGE
    assert "error: KACTL_TOKEN: a token is one line of ASCII characters" in by_variable.err
    assert token not in by_variable.err
    if "\n" not in token:  # only the first line of a file counts
        file = private(tmp_path / "token", f"{token}\n")
        by_file = kactl("--server", "http://127.0.0.1:1", "status", "--token-file", file)
        assert by_file.code == Exit.USAGE
        assert f"--token-file: {file}: a token is one line of ASCII characters" in by_file.err


def test_origin_has_scheme_host_and_port() -> None:
    assert origin("https://Kactl.Example/x") == origin("https://kactl.example:443") != origin("http://kactl.example")


class _Handler(http.server.BaseHTTPRequestHandler):
    target = ""
    seen: list[str | None]

    def do_GET(self) -> None:
        self.seen.append(self.headers.get("Authorization"))
        self.send_response(307 if self.target else 404)
        self.send_header("Location", f"{self.target}{self.path}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


class Fake:
    """HTTP server that redirects, and records the credentials that it receives."""

    def __init__(self, target: str = "") -> None:
        self.seen: list[str | None] = []
        handler = type("Handler", (_Handler,), {"target": target, "seen": self.seen})
        self.server = http.server.HTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


@pytest.fixture
def fakes() -> Iterator[tuple[Fake, Fake]]:
    last = Fake()
    first = Fake(last.url)
    yield first, last
    first.close()
    last.close()


def test_token_is_not_sent_to_the_target_of_a_redirect(fakes: tuple[Fake, Fake], tmp_path: Path) -> None:
    first, last = fakes
    file = private(tmp_path / "token", "secret\n")

    kactl("--server", first.url, "status", "--token-file", file)

    assert (first.seen, last.seen) == (["Bearer secret"], [None])


def test_token_is_sent_to_origins_that_its_context_lists(fakes: tuple[Fake, Fake], tmp_path: Path) -> None:
    first, last = fakes
    file = private(tmp_path / "token", "secret\n")
    contexts = tmp_path / "kactl" / "contexts.toml"
    contexts.parent.mkdir()
    contexts.write_text(f'[contexts.x]\nserver = "{first.url}"\ntoken-file = "{file}"\norigins = ["{last.url}"]\n')

    kactl("--server", first.url, "status", env={"XDG_CONFIG_HOME": str(tmp_path)})

    assert (first.seen, last.seen) == (["Bearer secret"], ["Bearer secret"])


def test_token_stays_here_when_another_program_has_taken_the_port(
    fakes: tuple[Fake, Fake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, other = fakes
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    token_file = private(tmp_path / "token", "secret\n")
    run = run_file.RunFile(url=other.url, pid=1, socket=str(tmp_path / "gone.sock"), token_file=str(token_file))
    port = other.server.server_address[1]
    run_file.write(run_file.run_folder(), run_file.base_name("127.0.0.1", port), run)

    kactl("--server", other.url, "status", env={"XDG_STATE_HOME": str(tmp_path)})

    assert other.seen == [None]


def test_server_that_does_not_run_is_reported_as_before(tmp_path: Path) -> None:
    failed = kactl("--server", f"http://127.0.0.1:{free_port()}", "status", env={"XDG_STATE_HOME": str(tmp_path)})

    assert failed.code == Exit.UNREACHABLE
    assert "kactl up" in failed.err
