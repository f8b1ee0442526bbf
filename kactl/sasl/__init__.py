"""SASL mechanisms without I/O: bytes of one side in, bytes of the other side out.

    mechanism = DigestMd5("kafka", password, service="zookeeper", host="zk-sasl-md5")
    token = mechanism.first()
    while not mechanism.is_complete:
        token = mechanism.respond(await exchange(token))

One object serves one login. Names and passwords are never part of an error.
"""

from .digest_md5 import DigestMd5
from .mechanism import ClientMechanism, SaslError
from .plain import Plain
from .scram import ScramClient, ScramServer, ScramVerifier, salted_password, verifier

__all__ = [
    "ClientMechanism",
    "DigestMd5",
    "Plain",
    "SaslError",
    "ScramClient",
    "ScramServer",
    "ScramVerifier",
    "salted_password",
    "verifier",
]
