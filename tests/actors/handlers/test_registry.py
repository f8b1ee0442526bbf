"""Each kind of event has exactly one handler."""

from unittest.mock import MagicMock

import pytest

from kactl.actors.handlers import registry
from kactl.actors.handlers.producer_ids import ProducerIds
from kactl.decide.messages.events import BrokerChange, Event


def leaves(kind: type[Event]) -> set[type[Event]]:
    return set().union(*map(leaves, kind.__subclasses__())) or {kind}


def handlers() -> registry.AllHandlers:
    return registry.AllHandlers(MagicMock(), unclean=MagicMock(), retry_later=MagicMock())


def test_each_kind_of_event_has_a_handler() -> None:
    shipped = {kind for kind in leaves(Event) if kind.__module__.startswith("kactl.")}  # other tests define more

    assert handlers().by_kind.keys() == shipped


def test_second_handler_of_an_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerIds, "handlers", lambda _: {BrokerChange: MagicMock()})

    with pytest.raises(ValueError, match=r"two handlers of \['BrokerChange'\]"):
        handlers()
