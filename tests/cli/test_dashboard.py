"""`kactl dashboard`: the address that logs a page in."""

import json
import urllib.request

import pytest

from tests.cli.server import Up

pytestmark = pytest.mark.slow


def test_printed_address_is_worth_one_login(up: Up) -> None:
    done = up("dashboard")

    address, code = done.out.strip().split("#login=")
    assert address == f"{up.url}/"
    assert "within a minute" in done.err
    request = urllib.request.Request(
        f"{up.url}/v1/login", b"{}", {"Authorization": f"Bearer {code}", "Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert json.load(answer)["role"] == "admin"
