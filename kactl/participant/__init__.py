"""The broker side in the same process.

A participant registers, carries out the controller's requests, and calls the application's listener.
"""

from .group import Participants
from .hosted_replicas import HostedPartition, Role
from .hub import Handler, Hub
from .listener import Listener
from .metadata import CachedPartition
from .participant import Life, Participant

__all__ = [
    "CachedPartition",
    "Handler",
    "HostedPartition",
    "Hub",
    "Life",
    "Listener",
    "Participant",
    "Participants",
    "Role",
]
