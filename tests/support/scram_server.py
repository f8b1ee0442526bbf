"""The server's side of SCRAM, after RFC 5802, section 3: an oracle for the client's side."""

import base64
import hashlib
import hmac
import os


class ScramServer:
    """One login of one user. A wrong name or proof is an AssertionError."""

    def __init__(self, name: str, username: str, password: str, iterations: int) -> None:
        self.hash = name.removeprefix("SCRAM-").replace("-", "").lower()
        self.username = username
        self.salt = os.urandom(16)
        self.iterations = iterations
        salted = hashlib.pbkdf2_hmac(self.hash, password.encode(), self.salt, iterations)
        self.stored = hashlib.new(self.hash, hmac.digest(salted, b"Client Key", self.hash)).digest()
        self.server_key = hmac.digest(salted, b"Server Key", self.hash)
        self.messages: list[str] = []

    def first(self, message: bytes) -> bytes:
        bare = message.decode().removeprefix("n,,")
        name, nonce = bare.split(",r=")
        assert name.removeprefix("n=").replace("=2C", ",").replace("=3D", "=") == self.username
        reply = f"r={nonce}server,s={base64.b64encode(self.salt).decode()},i={self.iterations}"
        self.messages = [bare, reply]
        return reply.encode()

    def final(self, message: bytes) -> bytes:
        without_proof, _, proof = message.decode().rpartition(",p=")
        auth = ",".join([*self.messages, without_proof]).encode()
        signature = hmac.digest(self.stored, auth, self.hash)
        key = bytes(left ^ right for left, right in zip(base64.b64decode(proof), signature, strict=True))
        assert hashlib.new(self.hash, key).digest() == self.stored
        return b"v=" + base64.b64encode(hmac.digest(self.server_key, auth, self.hash))
