"""Keys of one cluster in etcd.

    <prefix>/<cluster>/
        assignments/<topic>           id and assignment of a topic
        brokers/<id>                  registrations
        clients/<lease>               instances and other clients, while their sessions last
        config/brokers                settings for all brokers
        config/topics/<topic>         settings of one topic
        controller                    the active controller, while its session lasts
        delete/<topic>                topics that are marked for deletion
        epoch                         the controller epoch; its etcd version is the fence
        features, maintenance, producer-ids
        ids/<topic number>            copy of the id of a topic
        notify/isr/<uuid>, notify/log-dir/<uuid>
        requests/preferred-election, requests/reassignment
        state/<topic number>/<partition>   leadership

Leadership comes last, so that one range contains everything else: most clients watch that range only. A topic's number
is the revision at which its assignment was created. A topic that is deleted and created again has another number, so
its partitions have other keys, whose versions begin anew.
"""

import re
from typing import Final, NamedTuple

from kactl.model.errors import BadConfig
from kactl.stores.formats.json_text import INT32_MAX

_CLUSTER: Final = re.compile("[A-Za-z0-9._-]{1,249}")
# int64 in hexadecimal, and int32 in decimal digits: keys of equal length sort by number.
_NUMBER_DIGITS: Final = 16
_PARTITION_DIGITS: Final = 10
_STATE: Final = re.compile(b"([0-9a-f]{%d})/([0-9]{%d})" % (_NUMBER_DIGITS, _PARTITION_DIGITS))


class Interval(NamedTuple):
    """All keys from `begin` up to but not including `end`."""

    begin: bytes
    end: bytes


class Keys:
    """Keys of one cluster.

    Raises:
        BadConfig: the prefix or the cluster's name cannot be part of a key.
    """

    def __init__(self, prefix: str, cluster: str) -> None:
        if not prefix.startswith("/") or not prefix.isascii() or "//" in prefix:
            raise BadConfig("prefix", f"{prefix!r} should begin with a slash, as in /kactl")
        if not _CLUSTER.fullmatch(cluster):
            raise BadConfig("cluster", f"{cluster!r} should consist of ASCII letters, digits, '.', '_' and '-'")
        # No key of kactl; a user for the prefix may not read it.
        self.outside = f"{prefix.rstrip('/')}0".encode()
        self.root = f"{prefix.rstrip('/')}/{cluster}/".encode()
        self.controller = self.root + b"controller"
        self.epoch = self.root + b"epoch"
        self.default_config = self.root + b"config/brokers"
        self.features = self.root + b"features"
        self.maintenance = self.root + b"maintenance"
        self.producer_ids = self.root + b"producer-ids"
        self.reassignment_request = self.root + b"requests/reassignment"
        self.preferred_election_request = self.root + b"requests/preferred-election"
        self.brokers = self._below("brokers")
        self.topics = self._below("assignments")
        self.topic_configs = self._below("config/topics")
        self.deletions = self._below("delete")
        self.id_copies = self._below("ids")
        self.isr_notifications = self._below("notify/isr")
        self.log_dir_notifications = self._below("notify/log-dir")
        self.states = self._below("state")
        self.all = _interval(self.root)
        self.all_but_states = Interval(self.root, self.states.begin)

    def broker(self, broker: int) -> bytes:
        return self.brokers.begin + str(broker).encode()

    def topic(self, name: str) -> bytes:
        return self.topics.begin + name.encode()

    def id_copy(self, number: int) -> bytes:
        return self.id_copies.begin + b"%0*x" % (_NUMBER_DIGITS, number)

    def topic_config(self, name: str) -> bytes:
        return self.topic_configs.begin + name.encode()

    def deletion(self, topic: str) -> bytes:
        return self.deletions.begin + topic.encode()

    def client(self, lease: int) -> bytes:
        return self.root + b"clients/%x" % lease

    def states_of(self, number: int) -> Interval:
        """The leadership of all partitions of a topic."""
        return _interval(self.states.begin + b"%0*x/" % (_NUMBER_DIGITS, number))

    def state(self, number: int, partition: int) -> bytes:
        """The leadership of one partition."""
        return self.states.begin + b"%0*x/%0*d" % (_NUMBER_DIGITS, number, _PARTITION_DIGITS, partition)

    def state_of_key(self, key: bytes) -> tuple[int, int] | None:
        """Returns topic number and partition of a key of leadership; None for a key that is none."""
        found = _STATE.fullmatch(key.removeprefix(self.states.begin))
        if found is None or int(found[2]) > INT32_MAX:
            return None
        return int(found[1], 16), int(found[2])

    def _below(self, folder: str) -> Interval:
        return _interval(self.root + folder.encode() + b"/")


def _interval(folder: bytes) -> Interval:
    """All keys in a folder, which ends with a slash."""
    return Interval(folder, folder[:-1] + b"0")  # the character after the slash


def name_in(interval: Interval, key: bytes) -> str:
    """Returns the last part of a key. A part that is not UTF-8 is returned with marks that no name contains."""
    return key.removeprefix(interval.begin).decode(errors="backslashreplace")
