"""Nothing that is distributed contains a credential: packages, pages, and examples."""

import base64
import re
import tarfile
import zipfile

import pytest

from kactl.security.access.role import Role
from kactl.security.access.tokens import new_token
from tests.support import tree
from tests.support.canary import leaks, suspicions
from tests.support.certificates import Authority
from tests.support.wheel import build_sdist, build_wheel

# The suite's own passwords: code that was tried with them must not have kept them.
OF_THE_SUITE = re.compile(r'^(?:[A-Z]+_)?PASSWORD(?:: Final)? = "([^"]{8,})"$', re.MULTILINE)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The content of each file of the wheel and of the source distribution."""
    folder = tmp_path_factory.mktemp("distribution")
    contents: dict[str, bytes] = {}
    with zipfile.ZipFile(build_wheel(folder)) as wheel:
        contents |= {f"wheel: {name}": wheel.read(name) for name in wheel.namelist()}
    with tarfile.open(build_sdist(folder)) as sdist:
        for member in sdist.getmembers():
            file = sdist.extractfile(member)
            if file is not None:
                contents[f"sdist: {member.name.partition('/')[2]}"] = file.read()
    return contents


def pages() -> dict[str, bytes]:
    """The content of each page, example, and other file beside the code and its tests."""
    left_out = ("tests", "kactl", "actors", "transports")
    return {
        str(path): (tree.ROOT / path).read_bytes()
        for path in (file.relative_to(tree.ROOT) for file in tree.tracked_files() if not file.is_symlink())
        if path.parts[0] not in left_out
    }


def passwords() -> set[str]:
    """Returns the passwords that tests use."""
    found = {
        secret
        for file in tree.tracked_files()
        if file.suffix == ".py" and file.is_relative_to(tree.ROOT / "tests")
        for secret in OF_THE_SUITE.findall(file.read_text(encoding="utf-8"))
    }
    assert len(found) > 3
    return found


def test_packages_contain_no_credential(packages: dict[str, bytes]) -> None:
    assert {name.partition(":")[0] for name in packages} == {"wheel", "sdist"}
    assert "sdist: kactl/security/access/tokens.py" in packages

    assert suspicions(packages) == []
    assert leaks(passwords(), packages) == []


def test_packages_contain_no_tests(packages: dict[str, bytes]) -> None:
    """Their credentials are no secrets, and look like ones."""
    assert [name for name in packages if name.partition(" ")[2].startswith("tests/")] == []


def test_pages_and_examples_contain_no_credential() -> None:
    contents = pages()
    assert {"README.md", "docs/security.md", "Makefile"} <= set(contents)
    assert any(name.startswith("examples/") for name in contents)

    assert suspicions(contents) == []


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    signed = Authority(tmp_path_factory.mktemp("planted")).sign("kactl")
    key = signed.key.read_bytes()
    token = new_token("ada", Role.ADMIN, random=bytes(range(40)), now_ms=0, expires_ms=None)
    verifier = base64.b64encode(bytes(64))
    return {
        "key": b"key = '''" + key,
        "certificate": signed.cert.read_bytes(),
        "key in a string": key.replace(b"\n", b"\\n"),
        "key in base64": base64.b64encode(b"x" + key),
        "token": token.text.encode(),
        "JSON web token": b"eyJhbGciOiJub25lIn0.eyJzdWIiOiJrYWN0bCJ9.",
        "cloud": b"AKIAIOSFODNN7EXAMPLE",
        "verifier": b"salt=eA==,stored_key=" + verifier,
        "verifier in JSON": b'"stored_key":"' + verifier,
        "password": b'password = "hunter22"',
        "password in JSON": b'"password": "hunter22"',
    }


def test_planted_credentials_are_found(planted: dict[str, bytes]) -> None:
    assert {name for name, _, _ in suspicions(planted)} == set(planted)


def test_planted_password_of_the_suite_is_found() -> None:
    secret = min(passwords())
    assert leaks(passwords(), {"x": base64.b64encode(f"a{secret}b".encode())})


@pytest.mark.parametrize(
    "text",
    [
        b'password-file = "/etc/kactl/kactl.password"',
        b'token = "TOKEN"',
        b'_BEGIN = "-----BEGIN CERTIFICATE-----"',
        b'password="$(cat 1)"',
        b'curl -H "Authorization: Bearer $(cat .kactl/security/local.token)"',
    ],
)
def test_places_and_forms_of_credentials_are_none(text: bytes) -> None:
    assert suspicions({"x": text}) == []
