"""Guards for resources that leaders write to: they compare fencing tokens, so a leader that acts too late is rejected.

    fenced          a transaction, with a row for the token in the database of the write
    headers         a header of a request, which a `HeaderFence` compares in the server
    object_key      the name of an object, ordered by token
    PutIfMatch      an object that is replaced under a condition, with the token as metadata

Each verifies the lease first (`Leader.check`), which saves a request that would be rejected. Nothing here depends on
the lease: the token alone decides.
"""

from .drivers import Dialect
from .header import HEADER, HeaderFence, headers
from .objects import ObjectHead, ObjectStore, PutIfMatch, object_key
from .sql import ddl
from .transactions import Fenced, fenced, sql_guard

__all__ = [
    "HEADER",
    "Dialect",
    "Fenced",
    "HeaderFence",
    "ObjectHead",
    "ObjectStore",
    "PutIfMatch",
    "ddl",
    "fenced",
    "headers",
    "object_key",
    "sql_guard",
]
