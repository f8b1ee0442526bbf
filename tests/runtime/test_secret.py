"""Secrets show themselves to none but those who authenticate with them."""

import base64
import copy
import json
import pickle
import re
import traceback
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kactl.runtime.secret import Secret
from tests.support.canary import leaks
from tests.support.tree import ROOT

MARKER = "canary-4711-Zq"

# Modules that authenticate by a secret.
REVEALING = {
    "kactl/cli/credentials.py",
    "kactl/cli/kafka_user.py",
    "kactl/stores/etcd/calls.py",
    "kactl/stores/zookeeper/connection/credentials.py",
    "transports/kafka/credentials.py",
    "transports/tcp/identity.py",
}


@pytest.mark.parametrize(
    "show",
    [
        repr,
        str,
        "{}".format,
        "{:>20}".format,
        lambda secret: f"{secret!r} {secret}",
        lambda secret: "%s %r" % (secret, secret),  # noqa: UP031
        lambda secret: str([secret, {"a": secret}]),
        lambda secret: str(vars(secret)) if hasattr(secret, "__dict__") else "***",
    ],
)
def test_text_of_a_secret_is_stars(show: Callable[[Secret], str]) -> None:
    text = show(Secret(MARKER))
    assert "***" in text
    assert leaks([MARKER], {"text": text.encode()}) == []


@pytest.mark.parametrize(
    "encode", [pickle.dumps, json.dumps, msgspec.json.encode, msgspec.msgpack.encode, hash, list, bytes]
)
def test_secret_cannot_be_encoded(encode: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError) as raised:
        encode(Secret(MARKER))
    shown = "".join(traceback.format_exception(raised.value))
    assert leaks([MARKER], {"error": shown.encode()}) == []


def test_secret_reveals_what_it_was_given() -> None:
    assert Secret(MARKER).reveal() == Secret(MARKER.encode()).reveal() == MARKER.encode()
    assert Secret.of(MARKER) == Secret(MARKER) == Secret.of(Secret(MARKER))
    assert Secret(MARKER) != Secret("another")
    assert Secret(MARKER) != MARKER
    assert copy.deepcopy({"a": Secret(MARKER)}) == {"a": Secret(MARKER)}
    assert (bool(Secret("")), len(Secret("abc"))) == (False, 3)


def test_few_modules_reveal_secrets() -> None:
    sources = [path for folder in ("kactl", "actors", "transports") for path in (ROOT / folder).rglob("*.py")]
    revealing = {
        path.relative_to(ROOT).as_posix()
        for path in sources
        if not path.relative_to(ROOT).as_posix().startswith(("kactl/actors/", "kactl/transports/"))
        and re.search(r"\.reveal\(\)", path.read_text(encoding="utf-8"))
    }
    assert revealing == REVEALING


@pytest.mark.parametrize(
    ("form", "content"),
    [
        ("plain", f"x {MARKER} y".encode()),
        ("reversed", MARKER[::-1].encode()),
        ("hex", MARKER.encode().hex().upper().encode()),
        ("quoted", MARKER.encode()),
        ("bytes", str(list(MARKER.encode())).encode()),
        *(
            (f"base64+{len(prefix) % 3}", base64.b64encode(f"{prefix}{MARKER}.".encode()))
            for prefix in ("", "u", "\0u")
        ),
    ],
)
def test_planted_marker_is_found(form: str, content: bytes) -> None:
    assert form in {found for _, _, found in leaks([MARKER], {"log": content})}
