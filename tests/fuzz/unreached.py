"""Lines that no input of a target reaches: functions that are no decoders, and the reasons for the others.

Inputs reach no line that reads a file which the target does not write, that waits, or that follows a login with the
password; and none that only another mistake in kactl leads to.
"""

import re
from typing import Final

# Modules that decode nothing: targets enter them to use decoded values, or to encode.
_NO_DECODERS: Final = re.compile(
    r"_handlers\.py|relayed_authorization\.py|responses\.py|topic_metadata\.py|pools\.py|forensics/storage\.py"
    r"|access/authorizer\.py|listener/frames\.py|/runtime/|state/records\.py|state/topics\.py|codec/topic_ids\.py"
    r"|builder\.py|forensics/text/parser\.py|columns\.py|broker_id\.py"
)
_ENCODING: Final = "encodes"
_PASSWORD: Final = "follows a login with the password, which no input is"
_FILE: Final = "the file is missing, cannot be read, or belongs to others"
_LARGE: Final = "an input of more than some megabytes or thousands of elements; a test of its own has it"
_OTHER: Final = "values of another version or place of kactl, not of the bytes"
_NAME: Final = "the name of the file is no UTF-8"
_STEPS: Final = "interrupts a request of more than 5,000 elements; the tests of the listener have some"
_BUG: Final = "defence: the check before it would have to be wrong"
_SAME_ID: Final = "the request of the target has no two topics with the same id"
# By the end of the file and the function. Several lines of one function have one reason.
REASONS: Final[dict[tuple[str, str], str]] = {
    ("security/access/tickets.py", "read_ticket"): "a signed ticket of another version",
    ("admin/audit_file.py", "_lines"): _FILE,
    ("admin/cursor.py", "read"): "a request without a cursor has no bytes",
    ("admin/identity/token_file.py", "read_tokens"): _FILE,
    ("admin/origin.py", "_authority"): _BUG,
    ("admin/route.py", "_choices"): "parameters of no route have values of an enumeration",
    ("cli/api_client.py", "refusal"): "depends on the status alone",
    ("cli/compat/kafka_leader_election.py", "_read"): _FILE,
    ("cli/context_file.py", "load"): _FILE,
    ("cli/partition_files.py", "content_of"): _LARGE,
    ("config/checks.py", "_check_protocols"): "depends on two keys, which the seeds do not have together",
    ("config/file.py", "_read"): _FILE,
    ("config/file.py", "_key_of"): _BUG,
    ("config/file.py", "_read_duration"): _BUG,
    ("fencing/header.py", "HeaderFence.admit"): "needs a header before it, or none",
    ("fencing/header.py", "HeaderFence._keep"): _LARGE,
    ("forensics/jobs/catalog.py", "_read_manifest"): _OTHER,
    ("forensics/tables.py", "read_manifest"): _OTHER,
    ("forensics/text/records.py", "records"): "bytes in memory can be read; those of the target gzip files are damaged",
    ("forensics/text/source.py", "Unpacked.read"): _LARGE,
    ("forensics/text/source.py", "lines"): _LARGE,
    ("forensics/text/probe.py", "_broker.<locals>.<setcomp>"): "the path of the file has no number",
    ("forensics/text/probe.py", "_broker"): "the path of the file has no number",  # from Python 3.12 on
    ("forensics/text/probe.py", "_is_text"): _NAME,
    ("forensics/text/probe.py", "probe"): _NAME,
    ("forensics/text/zone.py", "_offset_us"): "the target has the hours of two days",
    ("decide/messages/control.py", "PartitionErrors.none"): _SAME_ID,
    ("forensics/whatif/snapshots/file.py", "read_stream"): _LARGE,
    ("forensics/whatif/snapshots/file.py", "_items"): _LARGE,
    ("security/sasl/digest_md5.py", "DigestMd5.respond"): _PASSWORD,
    ("security/sasl/oauthbearer.py", "OAuthBearerClient.first"): _OTHER,
    ("security/sasl/scram.py", "ScramClient.respond"): _PASSWORD,
    ("security/sasl/scram.py", "ScramServer.finish"): _PASSWORD,
    ("stores/formats/access.py", "decode_acls"): _LARGE,
    ("kafka/codec/primitive.py", "uvarint"): _ENCODING,
    ("kafka/credentials.py", "BrokerCredentials.__init__"): _OTHER,
    ("kafka/codec/response.py", "_under_ids_one_by_one"): _SAME_ID,
    ("kafka/credentials.py", "BrokerCredentials.login"): _OTHER,
    ("kafka/credentials.py", "BrokerCredentials.principal"): _OTHER,
    ("kafka/credentials.py", "BrokerCredentials.remedy"): _OTHER,
    ("kafka/credentials.py", "LoginConnection._log_in"): _PASSWORD,
    ("kafka/credentials.py", "_check"): _OTHER,
    ("listener/field_types.py", "Elements.take"): _LARGE,
    ("listener/field_types.py", "numbers"): _STEPS,
    ("listener/user_file.py", "decode"): _LARGE,
    ("tcp/framing.py", "FrameDecoder._frame"): "other limits than those of the target; its tests have them",
    ("transports/tcp/wire/__init__.py", "encode_pieces"): _ENCODING,
    ("transports/tcp/wire/control.py", "states_pieces"): _ENCODING,
}  # fmt: skip


def is_decoder(file: str) -> bool:
    """Returns whether the lines of a file count."""
    return _NO_DECODERS.search(file) is None


def reason(file: str, function: str) -> str:
    """Returns why lines of a function are not reached; empty if that is not known."""
    return next((why for (end, name), why in REASONS.items() if file.endswith(f"/{end}") and name == function), "")
