"""SASL mechanisms without I/O: bytes of one side in, bytes of the other side out.

    conversation = Conversation(DigestMd5("kafka", password, service="zookeeper", host="zk-sasl-md5"))
    token = conversation.begin()
    while token is not None:
        token = conversation.next(await exchange(token))

One object serves one login. `SaslMechanism` is the interface of mechanisms that are not a part of kactl. Names and
passwords are never part of an error.
"""

from .digest_md5 import DigestMd5
from .mechanism import ClientMechanism, Conversation, SaslError, SaslMechanism
from .oauthbearer import Bearer, OAuthBearerClient
from .plain import Plain
from .scram import ScramClient, ScramServer, ScramVerifier, decoy, salted_password, verifier

__all__ = [
    "Bearer",
    "ClientMechanism",
    "Conversation",
    "DigestMd5",
    "OAuthBearerClient",
    "Plain",
    "SaslError",
    "SaslMechanism",
    "ScramClient",
    "ScramServer",
    "ScramVerifier",
    "decoy",
    "salted_password",
    "verifier",
]
