"""The guide for authors of stores names methods and modules that exist."""

import re

from kactl.stores.base import Session, Store
from tests.support.tree import ROOT

GUIDE = (ROOT / "docs" / "stores.md").read_text(encoding="utf-8")


def test_guide_names_methods_of_the_protocol() -> None:
    _, _, table = GUIDE.partition("| --- | --- | --- |\n")
    rows = [line.split("|") for line in table.split("\n\n")[0].splitlines()]
    named = {name for row in rows for name in re.findall(r"`([\w.]+)`", row[-2]) if name != "fence"}

    assert {"commit", "contest", "changes", "Session.renew", "delete_topics"} <= named
    for name in named:
        owner = Session if name.startswith("Session.") else Store
        assert hasattr(owner, name.removeprefix("Session.")), name


def test_guide_names_files_that_exist() -> None:
    for path in re.findall(r"`((?:kactl|tests)/[\w/.]+)`", GUIDE):
        assert (ROOT / path).exists(), path
