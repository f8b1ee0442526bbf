"""Client that requests the cluster metadata from one particular broker."""

import socket
import struct
from typing import Final, NamedTuple, Self

from kio.schema.metadata.v5.request import MetadataRequest
from kio.schema.metadata.v5.response import MetadataResponse
from kio.schema.response_header.v0.header import ResponseHeader
from kio.serial import entity_reader

from tests.support.kio_codec import entity_bytes

ANSWER_S: Final = 60.0


class FanOut(NamedTuple):
    """One response.

    Attributes:
        brokers: the address of each broker, on the listener of the request.
        leaders: the leader of every partition, by its name; -1 for none.
        offline: partitions that have no leader according to the broker.
    """

    controller: int
    brokers: dict[int, tuple[str, int]]
    leaders: dict[str, int]
    offline: list[str]


class MetadataClient:
    """Connection to one listener, of a broker or of kactl."""

    def __init__(self, port: int) -> None:
        self._connection = socket.create_connection(("127.0.0.1", port), ANSWER_S)
        self._asked = 0

    def look(self) -> FanOut:
        """Request all metadata. Raises OSError if the broker is not available."""
        self._asked += 1
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        header = MetadataRequest.__header_schema__(
            request_api_key=request.__api_key__,
            request_api_version=request.__version__,
            correlation_id=self._asked,  # type: ignore[arg-type]
            client_id="metadata-client",
        )
        content = entity_bytes(header) + entity_bytes(request)
        self._connection.sendall(struct.pack(">i", len(content)) + content)
        (length,) = struct.unpack(">i", self._receive(4))
        answer = self._receive(length)
        answered, used = entity_reader(ResponseHeader)(answer, 0)
        assert answered.correlation_id == self._asked
        response, _ = entity_reader(MetadataResponse)(answer, used)
        partitions = {
            f"{topic.name}-{member.partition_index}": member for topic in response.topics for member in topic.partitions
        }
        return FanOut(
            controller=response.controller_id,
            brokers={member.node_id: (member.host, member.port) for member in response.brokers},
            leaders={name: member.leader_id for name, member in partitions.items()},
            offline=[name for name, member in partitions.items() if member.error_code or member.leader_id < 0],
        )

    def _receive(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            piece = self._connection.recv(count - len(received))
            if not piece:
                raise ConnectionResetError("closed by the broker")
            received += piece
        return bytes(received)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
