"""A controller about itself and the brokers it sees, in controller.log."""

from typing import Final

from kactl.forensics.event_types import EventType, Role
from kactl.forensics.text.format import Format, line

_C: Final = Role.CONTROLLER
_LIST: Final = r"(?:\w+\()?{%s:ids}\)?"

FORMATS: Final[tuple[Format, ...]] = (
    line(
        "C1a",
        EventType.CONTROLLER_ELECTED,
        _C,
        r"{controller:int} successfully elected as the controller",
        since=(0, 11),
        until=(2, 0),
    ),
    line(
        "C1b",
        EventType.CONTROLLER_ELECTED,
        _C,
        r"{controller:int} successfully elected as the controller\. Epoch incremented to {controller_epoch:int} "
        r"and epoch zk version is now \d+",
        since=(2, 1),
    ),
    line(
        "C1c",
        EventType.CONTROLLER_EPOCH,
        _C,
        r"Epoch incremented to {controller_epoch:int}",
        since=(1, 1),
        until=(2, 0),
    ),
    line("C1d", EventType.CONTROLLER_EPOCH, _C, r"Incremented epoch to {controller_epoch:int}", until=(1, 0)),
    line(
        "C1e",
        EventType.CONTROLLER_EPOCH,
        _C,
        r"Controller {controller:int} incremented epoch to {controller_epoch:int}",
        since=(0, 8),
        until=(0, 11),
    ),
    line(
        "C2a",
        EventType.CONTROLLER_READY,
        _C,
        r"Ready to serve as the new controller with epoch {controller_epoch:int}",
    ),
    line("C2b", EventType.CONTROLLER_STARTED, _C, r"Starting the controller scheduler"),
    line("C2c", EventType.CONTROLLER_RESIGNED, _C, r"Resigned"),
    line(
        "C2d",
        EventType.CONTROLLER_MOVED,
        _C,
        r"Controller moved to another broker when processing {reason:rest}",
        since=(2, 1),
    ),
    line(
        "C3",
        EventType.BROKERS_CHANGED,
        _C,
        r"Newly added brokers: {brokers_added:ids}, deleted brokers: {brokers_removed:ids}, "
        r"(?:bounced brokers: {brokers_bounced:ids}, )?all live brokers: {brokers:ids}",
        since=(0, 11),
    ),
    # What a controller finds as it takes over.
    line(
        "C3b",
        EventType.BROKERS_CHANGED,
        _C,
        r"Currently active brokers in the cluster: \w+\({brokers:ids}\)",
        since=(0, 8),
    ),
    line(
        "C4a",
        EventType.BROKER_FAILED,
        _C,
        r"Broker failure callback for " + _LIST % "brokers_removed",
        since=(0, 8),
    ),
    line(
        "C4b",
        EventType.BROKER_STARTED,
        _C,
        r"New broker startup callback for " + _LIST % "brokers_added",
        since=(0, 8),
    ),
    line(
        "C4c",
        EventType.BROKER_STOPPED_COUNTING,
        _C,
        r"Removed (?:\w+\()?{broker:int}\)? from list of shutting down brokers\.",
        since=(0, 8),
    ),
    line("C4d", EventType.BROKER_STOPPING, _C, r"Shutting down broker {broker:int}", since=(0, 8)),
)
