"""`make lint` finds each construct that SECURITY.md excludes from the product."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tree import ROOT

PLANTED = {
    "S102": "exec(input())\n",
    "S301": "import pickle\n\npickle.loads(b'')\n",
    "S307": "eval(input())\n",
    "S324": "import hashlib\n\nhashlib.md5(b'')\n",
    "S323": "import ssl\n\nssl._create_unverified_context()\n",
    "S602": "import subprocess\n\nsubprocess.run('ls', shell=True, check=True)\n",
    "S605": "import os\n\nos.system('ls ' + input())\n",
}


@pytest.mark.parametrize("rule", PLANTED)
def test_planted_line_is_found(rule: str, tmp_path: Path) -> None:
    """The project's own configuration, as for a module of the product."""
    (tmp_path / "kactl").mkdir()
    file = tmp_path / "kactl" / "planted.py"
    file.write_text(PLANTED[rule])
    config = ROOT / "pyproject.toml"
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--no-cache",
        "--config",
        str(config),
        "--output-format",
        "concise",
    ]

    done = subprocess.run([*command, str(file)], capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 1
    assert rule in done.stdout


COMPARED_ELSEWHERE = {
    # Compared with the setting of a program's own context, which is refused without logins.
    "CERT_NONE": ["kactl/kafka/embedded_listener.py"],
    # The identities of the tcp network are URIs, which its own handshake compares; certificates are verified too.
    "check_hostname = False": ["transports/tcp/tls.py"],
    # Clients without a certificate are anonymous on a listener; a certificate that a client sends is verified.
    "CERT_OPTIONAL": ["kactl/runtime/server_tls.py"],
}


@pytest.mark.parametrize("setting", ["check_hostname = False", "CERT_NONE", "CERT_OPTIONAL"])
def test_certificates_are_verified_everywhere(setting: str) -> None:
    """Rules of the linter know libraries, but not the attributes of a context."""
    product = [path for folder in ("kactl", "actors", "transports") for path in (ROOT / folder).rglob("*.py")]

    assert len(product) > 500
    found = [str(path.relative_to(ROOT)) for path in product if setting in path.read_text()]
    assert found == COMPARED_ELSEWHERE.get(setting, [])
