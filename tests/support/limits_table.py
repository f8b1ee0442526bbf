"""Limits on the input of kactl, as listed in docs/limits.md.

`python -m tests.support.limits_table` writes the tables into the page; a test fails while they differ from the code.
Each number is read from where the decoder gets it.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from kactl import model
from kactl.admin import limits as http
from kactl.admin.identity import login_codes, run_file, token_file
from kactl.admin.route import BODY_BYTES_MAX, BODY_ELEMENTS_MAX, SMALL_BODY_BYTES_MAX
from kactl.admin.schema import common
from kactl.cli import partition_files, sse
from kactl.config.kafka_settings import KafkaConfig
from kactl.config.settings import ApiConfig
from kactl.decide.messages import leases
from kactl.forensics.text import source
from kactl.runtime import user_state
from kactl.runtime.budget import RATES, Unit
from kactl.security.access import tickets
from kactl.security.sasl import digest_md5, mechanism, oauthbearer, scram
from kactl.security.tls import encryption, tls_turns
from kactl.stores.etcd import calls as etcd_calls
from kactl.stores.etcd import http2
from kactl.stores.formats import access, json_text
from kactl.stores.sqlite import frame as sqlite
from kactl.stores.zookeeper.connection import frames, messages
from kactl.telemetry.state_change_log import past
from kactl.transports.kafka import client, credentials
from kactl.transports.kafka.listener import (
    admission,
    authentication,
    connection,
    field_types,
    quotas,
    relay,
    user_file,
    user_handlers,
)
from kactl.transports.kafka.listener import limits as listener_limits
from kactl.transports.kafka.listener.limits import CLIENT_POOL_REQUESTS, ELEMENT_BYTES, EXPANSION, Limits
from kactl.transports.tcp import controller_links, peer_requests
from kactl.transports.tcp import limits as tcp
from kactl.transports.tcp import link as tcp_link
from kactl.transports.tcp.wire import requests

from . import tree

PAGE: Final = tree.ROOT / "docs" / "limits.md"
BEGIN: Final = "<!-- begin: python -m tests.support.limits_table -->\n"
END: Final = "<!-- end -->\n"

_KIB: Final = 1024
_MIB: Final = 1024 * 1024
_KAFKA: Final = KafkaConfig()
_API: Final = ApiConfig()
_LISTENER: Final = Limits()
_TCP: Final = tcp.Limits()


class Limit(NamedTuple):
    """One limit. `key`: the setting that changes it; empty if none does."""

    input: str
    limit: str
    excess: str
    key: str = ""


def size(count: int) -> str:
    """Returns a number of bytes as text, rounded to the unit that it is close to."""
    for unit, name in ((_MIB, "MiB"), (_KIB, "KiB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count} bytes"


def _http() -> Iterator[Limit]:
    yield Limit(
        "request line; one field", f"{size(http.LINE_BYTES_MAX)}; {size(http.FIELD_BYTES_MAX)}", "400 or 431, closed"
    )
    yield Limit("fields; all of the head", f"{http.FIELDS_MAX}; {size(http.HEAD_BYTES_MAX)}", "400 or 431, closed")
    yield Limit("time of a head", f"{http.HEAD_TIMEOUT_S:g} s", "closed")
    yield Limit(
        "body", f"{size(SMALL_BODY_BYTES_MAX)}; reassignments and topics: {size(BODY_BYTES_MAX)}", "413, not read"
    )
    yield Limit("time of a body", f"{http.BODY_GRACE_S:g} s, then {size(http.BODY_BYTES_PER_S)}/s", "408, closed")
    yield Limit(
        "name of a topic, also on Kafka listeners", f"{model.TOPIC_NAME_LENGTH_MAX} characters", "400; INVALID_TOPIC"
    )
    yield Limit(
        "`reason`; partitions of an election",
        f"{common.REASON_LENGTH_MAX} characters; {common.ELECTION_PARTITIONS_MAX:,}",
        "400",
    )
    yield Limit(
        "a response that is not read; time between requests",
        f"{http.UNREAD_TIMEOUT_S:g} s; {http.IDLE_TIMEOUT_S:g} s",
        "closed",
    )
    yield Limit(
        "connections; of one address",
        f"{http.CONNECTIONS_MAX}; {http.CONNECTIONS_PER_ADDRESS_MAX}",
        "the one longest without a complete head is closed; of one address the one idle for longest, or the newest",
    )
    yield Limit(
        "connections of the address for probes",
        f"{http.PROBE_ADDRESS_CONNECTIONS}",
        "the one longest without a complete head is closed",
        "`api.probe-listen`",
    )
    yield Limit("event streams; of one client", f"{http.STREAMS_MAX}; {http.STREAMS_PER_CLIENT_MAX}", "503")
    yield Limit(
        "reads, changes of one client",
        f"{_API.reads_per_second}/s, {_API.changes_per_second}/s",
        "429",
        "`api.reads-per-second`, `api.changes-per-second`",
    )
    yield Limit("arrays and objects in a body", f"{BODY_ELEMENTS_MAX:,}", "400")
    yield Limit("work of one client, by `kactl/runtime/prices.py`", _work(), "429")
    yield Limit("failed logins of one address", f"{RATES[Unit.FAILURES].burst:g} in a minute", "429")
    yield Limit(
        "requests of one address without a token",
        f"{RATES[Unit.STRANGE].per_s:g} a second, five times as many at once",
        "429",
    )
    yield Limit("login code", f"{login_codes.LIFETIME_S:g} s, once", "401")
    yield Limit("ticket of a page", f"{tickets.LENGTH_MAX:,} characters", "401")
    yield Limit(
        "token file; a token in a file",
        f"{size(token_file.BYTES_MAX)}; {size(token_file.LOCAL_BYTES_MAX)}",
        "the previous tokens are kept",
    )


def _work() -> str:
    work = RATES[Unit.WORK]
    return f"{work.per_s:g} ms/s after {work.burst:,.0f} ms"


def _kafka() -> Iterator[Limit]:
    limits = _LISTENER
    pool = CLIENT_POOL_REQUESTS * limits.request_size_max * EXPANSION
    yield Limit(
        "request before the login",
        f"{size(authentication.REQUEST_SIZE_MAX)}, {authentication.ELEMENTS_MAX} elements",
        "closed",
    )
    yield Limit("time of TLS and of the login, each", f"{authentication.LOGIN_TIMEOUT_S:g} s", "closed")
    yield Limit(
        "request that is handled here",
        size(limits.request_size_max),
        f"error, up to {size(connection.DISCARD_SIZE_MAX)}; then closed",
        "`kafka.request-max-bytes`",
    )
    yield Limit(
        "ApiVersions and other small requests; requests about kactl's configs",
        f"{size(listener_limits.SMALL_SIZE_MAX)}; {size(connection._CONFIG_SIZE_MAX)}",
        "error or closed; relayed, if anything is",
    )
    yield Limit(
        "AlterPartition of a broker",
        size(limits.broker_request_size_max),
        "error or closed",
        "`kafka.broker-request-max-bytes`",
    )
    yield Limit(
        "request that is relayed unread", size(limits.frame_size_max), "closed", "`kafka.socket-request-max-bytes`"
    )
    yield Limit(
        "elements of a request",
        f"one for {ELEMENT_BYTES} bytes of its limit: {limits.request_size_max // ELEMENT_BYTES:,}, "
        f"of brokers {limits.broker_request_size_max // ELEMENT_BYTES:,}",
        "error",
        "with the size",
    )
    yield Limit("tagged fields of one struct", str(field_types.TAGS_MAX), "error or closed")
    yield Limit(
        "time of a frame", f"{limits.frame_timeout_s:g} s, and its size at {size(limits.frame_rate_min)}/s", "closed"
    )
    yield Limit(
        "memory of all clients' requests", size(pool), f"not read for {limits.reserve_timeout_s:g} s, then closed"
    )
    yield Limit(
        "connections; of one address that is no broker's",
        f"{_KAFKA.max_connections:,}; {_KAFKA.max_connections_per_ip}",
        "the longest idle client's is closed for a broker's; others are not accepted",
        "`kafka.max-connections`, `kafka.max-connections-per-ip`",
    )
    yield Limit("connections of one broker", str(admission.BROKER_CONNECTIONS_MAX), "the oldest count as a client's")
    yield Limit("connections of one address in a second", f"{admission.RATE_MAX_S:g}", "not accepted")
    yield Limit(
        "time between requests; of a response that is not read",
        f"{limits.idle_timeout_s:g} s; {limits.write_timeout_s:g} s",
        "closed",
    )
    yield Limit(
        "requests of a principal",
        f"{RATES[Unit.REQUESTS].per_s:g}/s after {RATES[Unit.REQUESTS].burst:g}",
        f"not read for up to {quotas.PAUSE_MAX_S:g} s",
    )
    yield Limit(
        "work of a principal, or of an address without one",
        _work(),
        f"THROTTLING_QUOTA_EXCEEDED, or not read for up to {quotas.PAUSE_MAX_S:g} s",
    )
    yield Limit(
        "partitions that a principal creates and deletes, or has validated",
        f"{_KAFKA.mutation_rate}/s after {_KAFKA.mutation_burst:,}",
        "THROTTLING_QUOTA_EXCEEDED, or not read",
        "`kafka.mutation-rate`, `kafka.mutation-burst`",
    )
    yield Limit("response to a relayed request", f"{relay.RESPONSE_TIMEOUT_S:g} s", "closed")


def _logins() -> Iterator[Limit]:
    yield Limit(
        "TLS handshakes of all peers of one interface; what they send afterwards",
        f"{tls_turns.SLICE_S * 1000:g} ms each in each iteration of the event loop",
        "they wait",
    )
    yield Limit("TLS records without content after the handshake of a peer", f"{encryption.EMPTY_MAX}", "closed")
    yield Limit("message of SCRAM", size(scram.MESSAGE_BYTES_MAX), "the login fails")
    yield Limit("iterations of a user that is stored", f"{user_handlers.ITERATIONS_MAX:,}", "UNACCEPTABLE_CREDENTIAL")
    yield Limit("iterations that a server of SCRAM may demand", f"{scram.ITERATIONS_MAX:,}", "the login fails")
    yield Limit(
        "file of users; users in it; their names",
        f"{size(user_file.BYTES_MAX)}; {user_file.USERS_MAX:,}; {user_file.NAME_LENGTH_MAX} characters",
        "the previous users are kept",
        "`kafka.users`",
    )
    yield Limit("message of OAUTHBEARER", size(oauthbearer.MESSAGE_BYTES_MAX), "the login fails")
    yield Limit("messages of a login", str(mechanism.ROUNDS_MAX), "the login fails")
    yield Limit("challenge of DIGEST-MD5", size(digest_md5.CHALLENGE_BYTES_MAX), "the login fails")
    yield Limit("ACLs of one resource", f"{access.ACLS_MAX:,}", "everything is denied on it")


def _peers() -> Iterator[Limit]:
    yield Limit("name of a participant", f"{model.PARTICIPANT_NAME_LENGTH_MAX} characters", "refused")
    yield Limit(
        "broker: response before the login; after it",
        f"{size(credentials.RESPONSE_SIZE_MAX)}; {size(client.RESPONSE_SIZE_MAX)}",
        "closed, and tried again",
    )
    yield Limit(
        "ZooKeeper: response; token of a login",
        f"{size(frames.FRAME_BYTES_MAX)}; {size(messages.SASL_TOKEN_BYTES_MAX)}",
        "closed, and tried again",
    )
    yield Limit(
        "replicas of a partition in a node", f"{json_text.REPLICAS_MAX:,}", "the topic is reported and left out"
    )
    yield Limit(
        "etcd: message; data that it does not read",
        f"{size(etcd_calls.RESPONSE_BYTES_MAX)}; {size(http2.UNSENT_BYTES_MAX)}",
        "the call fails; the connection is closed; both are tried again",
    )
    yield Limit("SQLite: values of one column", f"{sqlite._VALUES_MAX:,}", "the file counts as damaged")
    yield Limit(
        "tcp network: before the handshake",
        f"{size(tcp_link.HELLO_BYTES_MAX)}, {tcp_link.HELLO_FRAMES_MAX} frames, {_TCP.handshake_ms:,} ms",
        "closed",
    )
    yield Limit(
        "tcp network: connections before the end of the handshake",
        f"{_TCP.strangers}",
        "the newest of the address with the most is closed; before it, one that has sent nothing for a second",
        "`tcp.Limits`",
    )
    yield Limit(
        "tcp network: handshakes at a time; of one address",
        f"{2 * _TCP.strangers_per_address}; {_TCP.strangers_per_address}",
        "they wait",
        "`tcp.Limits`",
    )
    yield Limit(
        "tcp network: frame; message of a controller; incomplete messages; time of one",
        f"{size(tcp.PART_BYTES_MAX)}; {size(_TCP.message_bytes)}; {_TCP.streams:,}; {_TCP.request_ms / 1000:g} s, and "
        "as much for each MiB",
        "closed",
        "`tcp.Limits`",
    )
    yield Limit(
        "tcp network: part that is not the last of a message; message of a participant about its session; request or "
        "message to another participant; response",
        f"{size(tcp.PART_BYTES_MIN)} or more; {size(tcp.SESSION_BYTES_MAX)}; {size(tcp.REQUEST_BYTES_MAX)}; "
        f"{size(tcp.RESPONSE_BYTES_MAX)}",
        "closed",
    )
    yield Limit(
        "tcp network: request without columns; its rows; topics of one with columns",
        f"{size(requests.BYTES_MAX)}; {requests.ROWS_MAX:,}; {leases.TOPICS_MAX:,}",
        "the request is rejected before its rows are decoded",
    )
    yield Limit(
        "tcp network: links of one participant; its requests at a time",
        f"{controller_links.LINKS_MAX}; {peer_requests.REQUESTS_MAX:,}",
        "the oldest link is closed; further requests wait",
    )


def _files() -> Iterator[Limit]:
    yield Limit("line of a log", size(source.LINE_LIMIT), "cut")
    yield Limit("file of partitions or topics that a command reads", size(partition_files.FILE_BYTES_MAX), "an error")
    yield Limit("line of an event stream that a command reads", size(sse._LINE_BYTES_MAX), "connected again")
    yield Limit("run file of a server", size(run_file.BYTES_MAX), "ignored")
    yield Limit("secret of a user's networks", size(user_state.SECRET_BYTES_MAX), "an error")
    yield Limit(
        "own state-change log at the start: events; controllerships and elections",
        f"{size(past.EVENT_BYTES_MAX)}; {size(past.TERM_BYTES_MAX)}",
        "older lines are not read",
    )
    yield Limit(
        "growth of a gzip file", f"{source.RATIO_MAX} times, above {size(source.RATIO_FREE_BYTES)}", "not read further"
    )


_SECTIONS: Final = {
    "Admin API": _http,
    "Kafka listeners": _kafka,
    "Logins": _logins,
    "Peers that kactl asks, and the tcp network": _peers,
    "Files and streams": _files,
}


def tables() -> str:
    """Returns the part of the page between the marks."""
    lines = []
    for title, limits in _SECTIONS.items():
        lines += [f"## {title}", "", "| input | limit | beyond it | setting |", "| --- | --- | --- | --- |"]
        lines += [
            f"| {row.input} | {row.limit} | {row.excess} | {row.key} |".replace("|  |", "| |") for row in limits()
        ]
        lines.append("")
    return "\n".join(lines)


def page(text: str) -> str:
    """Returns the page with present tables."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{tables()}{END}{after}"


def main() -> None:
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
