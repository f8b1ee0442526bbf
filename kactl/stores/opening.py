"""Refusal of a store that is entered twice."""

from kactl.errors import IllegalState


def check_unopened(store: object) -> None:
    """Verify that a store is not open: each object is entered once, and a controller or spectator enters its own.

    Raises:
        IllegalState: it is.
    """
    if getattr(store, "is_open", False):
        raise IllegalState(
            f"the {type(store).__name__} is open already: a controller or spectator opens and closes its store, so "
            "pass it without `async with`, and another object to each of them"
        )
