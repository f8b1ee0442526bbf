"""Changes to the store that its tests must find."""

from typing import Any

import pytest

from kactl.stores.sqlite.catalog import Catalog


def split_creation_of_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Store the configurations of new topics in transactions of their own."""
    whole = Catalog.create_topics

    def topic_then_config(self: Catalog, topics: Any, parts: Any, configs: Any) -> None:
        whole(self, topics, parts, {})
        for name, config in configs.items():
            self.set_config(name, config)

    monkeypatch.setattr(Catalog, "create_topics", topic_then_config)
