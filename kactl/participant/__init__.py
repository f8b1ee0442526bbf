"""The broker side in the same process.

A participant registers, carries out the controller's requests, and calls the application's listener.
"""

from kactl.transports.base import ControlLink, Handler, LinkState, ParticipantNetwork, ParticipantPort

from .group import Participants
from .hosted_replicas import HostedPartition, Role
from .listener import Listener
from .lives import Life
from .metadata import CachedPartition
from .participant import Participant

__all__ = [
    "CachedPartition",
    "ControlLink",
    "Handler",
    "HostedPartition",
    "Life",
    "LinkState",
    "Listener",
    "Participant",
    "ParticipantNetwork",
    "ParticipantPort",
    "Participants",
    "Role",
]
