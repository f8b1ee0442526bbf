"""Terms of controllers, as observed by one instance."""

from kactl.model import ControllerRecord
from kactl.telemetry.terms import TERMS_MAX, Controllerships, Term


def test_terms_of_others_end_with_the_next_or_without_a_controller() -> None:
    seen = Controllerships()

    seen.seen(ControllerRecord(7, 3, 1000), now_ms=1500)
    seen.seen(ControllerRecord(7, 3, 1000), now_ms=1600)
    seen.seen(ControllerRecord(8, 5, 2000), now_ms=2100)
    seen.seen(None, now_ms=3000)

    assert seen.all() == [
        Term(3, 7, 1000, 2100, "a later controller was elected"),
        Term(5, 8, 2000, 3000, "nobody holds it any more"),
    ]


def test_own_term_ends_once_with_its_reason() -> None:
    seen = Controllerships()

    seen.elected(epoch=4, controller_id=1, now_ms=100)
    seen.seen(ControllerRecord(1, 4, 99), now_ms=150)
    seen.seen(None, now_ms=180)
    seen.resigned(epoch=4, cause="asked to resign", now_ms=200)
    seen.resigned(epoch=4, cause="again", now_ms=300)

    assert seen.all() == [Term(4, 1, 100, 200, "asked to resign", ours=True)]


def test_own_election_ends_the_observed_term() -> None:
    seen = Controllerships()

    seen.seen(ControllerRecord(7, 3, 1000), now_ms=1500)
    seen.elected(epoch=4, controller_id=1, now_ms=2000)

    assert [(term.epoch, term.ended_ms) for term in seen.all()] == [(3, 2000), (4, None)]


def test_oldest_terms_are_discarded() -> None:
    seen = Controllerships()

    for epoch in range(TERMS_MAX + 3):
        seen.elected(epoch=epoch, controller_id=1, now_ms=epoch)

    assert (len(seen.all()), seen.all()[0].epoch) == (TERMS_MAX, 3)


def test_terms_of_earlier_processes_come_first() -> None:
    earlier = Term(3, 1, 100, 200, "asked to resign", ours=True)
    seen = Controllerships()
    seen.restore([earlier])

    seen.seen(ControllerRecord(1, 3, 100), now_ms=300)  # the store still names this instance under the earlier epoch
    seen.elected(epoch=4, controller_id=1, now_ms=400)

    assert seen.all() == [earlier, Term(4, 1, 400, ours=True)]
