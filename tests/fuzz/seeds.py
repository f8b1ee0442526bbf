"""Seeds that reach the checks of decoders which random changes of one valid input do not reach."""

import gzip
from typing import Final

from kactl.transports.tcp.framing import HEADER

_KAFKA: Final = 'listeners = ["A://127.0.0.1:1", "B://h:2"]\n'
_ETCD: Final = '[store]\nkind = "etcd"\n'
_ZOOKEEPER: Final = '[store]\nkind = "zookeeper"\nconnect = "h:1/k"\n'
_TLS: Final = f'[kafka]\n{_KAFKA}[kafka.protocols]\nA = "SSL"\n[kafka.tls]\ncert = "c"\nkey = "k"\n'
_API_TLS: Final = '[api.tls]\ncert = "c"\nkey = "k"\n'
_CLIENT: Final = "[kafka.client]\n"
# Each section stands alone, so that one change cannot hide the checks of another one.
SETTINGS: Final = [
    ("node-id = 1\n" + text).encode()
    for text in (
        '[api]\nlisten = "h"\n',
        '[api]\nprobe-listen = "h"\n',
        '[api]\nlisten = "127.0.0.1:8080"\nprobe-listen = "127.0.0.1:8080"\n',
        '[api]\nprobe-listen = "127.0.0.1:8081"\ntrusted-proxies = ["10.0.0.5", "10.0.0.0/24"]\n',
        '[api]\ntrusted-proxies = ["0.0.0.0/0"]\n',
        '[api]\ntrusted-proxies = ["x"]\n',
        '[api]\nhosts = ["a b"]\n',
        '[api.tls]\ncert = "c"\n',
        '[api.tls]\nclient-ca = "c"\n',
        '[api.tls]\nclient-auth = "required"\n',
        f'{_API_TLS}client-auth = "required"\n',
        f'{_API_TLS}client-auth = "optional"\nclient-ca = "c"\nprincipal-rules = "RULE:("\n',
        f'{_API_TLS}client-auth = "optional"\nclient-ca = "c"\n[api.certificates]\n"CN=a" = "viewer"\n',
        '[api.instances]\n"2" = "http://kactl2.example:8080"\n',
        '[api.instances]\n"x" = "http://kactl2.example:8080"\n',
        '[api.instances]\n"2" = "x"\n',
        '[network]\nlisten = "127.0.0.1:7373"\nadvertise = "h:1"\ncontrollers = ["h:1"]\n',
        '[network]\nlisten = "h"\n',
        '[network]\nadvertise = "h:1"\n',
        '[network]\nlisten = "127.0.0.1:7373"\ncert = "c"\n',
        '[telemetry]\notlp = "http://127.0.0.1:4318"\n',
        '[telemetry]\notlp = "x"\n',
        '[store]\nkind = "zookeeper"\n',
        f"{_ZOOKEEPER}tls = true\n",
        f'{_ZOOKEEPER}tls = true\nca = "c"\ncert = "c"\nkey = "k"\nset-acl = true\n',
        f'{_ZOOKEEPER}tls = true\nca = "c"\ncert = "c"\n',
        f'{_ZOOKEEPER}tls = true\nca = "c"\nkey = "k"\n',
        f'{_ZOOKEEPER}ca = "c"\n',
        f'{_ZOOKEEPER}cert = "c"\n',
        f"{_ZOOKEEPER}set-acl = true\n",
        f'{_ZOOKEEPER}auth-scheme = "digest"\n',
        f'{_ZOOKEEPER}user = "u"\n',
        f'{_ZOOKEEPER}sasl-mechanism = "GSSAPI"\n',
        _ETCD,
        f'{_ETCD}endpoints = ["http://127.0.0.1:2379"]\nuser = "u"\npassword-file = "p"\n',
        f'{_ETCD}endpoints = ["x"]\n',
        '[kafka]\nlisteners = ["x"]\n',
        '[kafka]\nlisteners = ["A://h:1", "A://h:2"]\n',
        '[kafka]\nlisteners = ["A://0.0.0.0:1"]\n',
        f'[kafka]\n{_KAFKA}visible-on = ["C"]\n',
        f'[kafka]\n{_KAFKA}visible-on = ["A"]\nadvertised-listeners = ["A://h:1", "B://h:2"]\n',
        f'[kafka]\n{_KAFKA}broker-networks = ["x"]\n',
        f'[kafka]\n{_KAFKA}relay = "checked"\n',
        f'[kafka]\n{_KAFKA}[kafka.protocols]\nC = "SSL"\n',
        f'[kafka]\n{_KAFKA}[kafka.protocols]\nA = "SSL"\n',
        f'[kafka]\n{_KAFKA}[kafka.protocols]\nA = "SSL"\n[kafka.tls]\ncert = "c"\n',
        f'[kafka]\n{_KAFKA}relay = "open"\n[kafka.protocols]\nA = "SASL_PLAINTEXT"\n',
        f'[kafka]\n{_KAFKA}sasl-mechanisms = []\n[kafka.protocols]\nA = "SASL_PLAINTEXT"\n',
        f'[kafka]\n{_KAFKA}[kafka.protocols]\nA = "SASL_PLAINTEXT"\n[kafka.broker-principals]\npattern = "x"\n',
        f'[kafka]\n{_KAFKA}[kafka.protocols]\nA = "SASL_PLAINTEXT"\n[kafka.broker-principals.names]\nx = "User:x"\n',
        f'[kafka]\n{_KAFKA}[kafka.tls]\nclient-auth = "required"\n',
        f'{_TLS}client-auth = "required"\n',
        f'{_TLS}client-auth = "required"\nclient-ca = "c"\ncrl = "r"\n',
        f'{_TLS}client-auth = "required"\nclient-ca = "c"\nprincipal-rules = "RULE:("\n',
        f'{_TLS}client-ca = "c"\n',
        f'{_CLIENT}cert = "c"\n',
        f'{_CLIENT}key = "c"\n',
        f'{_CLIENT}server-name = "c"\n',
        f'{_CLIENT}username = "c"\n',
        f'{_CLIENT}ca = "c"\ncert = "c"\nkey = "k"\n',
        f'{_CLIENT}sasl-mechanism = "PLAIN"\nusername = "a"\npassword-file = "p"\n',
        f'{_CLIENT}sasl-mechanism = "GSSAPI"\n',
        f'{_CLIENT}token-file = "t"\n',
        f'{_CLIENT}sasl-mechanism = "OAUTHBEARER"\n',
        f'{_CLIENT}sasl-mechanism = "OAUTHBEARER"\ntoken-file = "t"\n',
        f'{_CLIENT}sasl-mechanism = "OAUTHBEARER"\ntoken-file = "t"\nusername = "a"\n',
        "api = 1\n",
        "log = 1\n",
        "store = 1\n",
        "[api]\nallow-changes = true\n",
        '[kafka.client]\npassword = "x"\n',
        "[api]\nunknown = 1\n",
        "[security]\nallow-insecure = [1]\n",
    )
] + [b"cluster = 1\n", b"node-id = \xff\n", b"node-id = 'x'\n", b"a = " + b"[" * 2000]
ENVIRONMENT: Final = [
    b"KACTL_NODE_ID=1\0KACTL_STORE__KIND=sqlite\0KACTL_API__HOSTS=a,b\0store.path=x\0api.listen=127.0.0.1:1",
    b"KACTL_NODE_ID=x\0KACTL_STORE=1\0KACTL_STORE__KIND=memory",
    b"KACTL_SECURITY__ALLOW_INSECURE=api\0KACTL_NODE_ID=1",
    b"KACTL_NODE_ID=1\0security.allow-insecure=api",
    b"KACTL_NODE_ID=1\0store.kind=sqlite\0store=1\0KACTL_STORE__SESSION_TIMEOUT=x",
    b"KACTL_NODE_ID=1\0store.unknown=x",
]
# Invalid UTF-8, and nesting beyond the limit of the interpreter.
BAD_JSON: Final = [
    b'{"title":"\xff","error":"\xff","url":"\xff","token":"\xff","made_by":"\xff"}', b"[" * 5000, b'{"a":' * 5000
]  # fmt: skip
SCRAM_FIRST: Final = [
    b"r=xyzabc,s=c2FsdA==,i=4096", b"m=x,r=xyzabc,s=c2FsdA==,i=4096", b"r=abc,s=c2FsdA==,i=4096", b"r=xyzabc,s=,i=4096",
    b"r=xyzabc,s=c2FsdA==,i=1", b"r=xyzabc,s=c2FsdA==,i=x", b"r=xyzabc,s=c2F,i=4096", b"r=xyzabc,,i=4096",
    b"r=" + b"x" * 70_000, b"r=xyz\xff",
]  # fmt: skip
SCRAM_NAMES: Final = [b"n,,x=alice,r=abc", b"n,,n==41,r=abc", b"n,,n=a=2Cb,r=abc"]
ZONES: Final = [b"UTC", b"Europe/Berlin", b"+02:00", b"-0330", b"+99", b"No/Where"]
DIGEST: Final = [
    b'realm="zk",nonce="n",charset=utf-8,algorithm=md5-sess,qop="auth"',
    b'nonce="n",algorithm=md5-sess,qop="auth-int,auth"',
    b'nonce="n",algorithm=md5-sess,qop="auth-conf"',
    b'nonce="n",algorithm=md5',
    'realm="\u20ac",nonce="n",charset=utf-8,algorithm=md5-sess'.encode(),
    'realm="\u20ac",nonce="n",algorithm=md5-sess'.encode(),
    b'nonce="\xff"',
    b"nonce",
    b'nonce="' + b"n" * 3000 + b'"',
]
RULES: Final = [
    b"RULE:^CN=(.*?),OU=(a|b)+[^,]*$/$1@$2/L, DEFAULT",
    b"RULE:(?i)cn=\\d{1,3}(?:x)?/\\$1$0/U",
    b"RULE:^[^a-z\\d]+[]x]$/a\\$b/",
    b"RULE:[a[b]]/x/",
    b"RULE:[a-z&&b]/x/",
    b"RULE:[\\1]/x/",
    b"RULE:[a/x/",
    b"RULE:(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)(k)/$11$1$12/",
    b"RULE:(a)/$1$9/",
    b"RULE:(a)/$x/",
    b"RULE:(a)/b\\\\/",
    b"RULE:(/x/",
    b"DEFAULT,DEFAULT",
    b"X",
    b"",
    b"RULE:(a)/b\\",
    b"RULE:*a/x/",
    b"RULE:(?=a)/x/",
    b"RULE:(?<=a)/x/",
    b"RULE:a}/x/",
    b"RULE:\\p{L}/x/",
]
_SHORT: Final = b"[2024-05-01 10:00:00,123] INFO [Controller id=1] a line (logger)\n"
PROBES: Final = [
    b"BZh91AY&SY" + bytes(20),
    b"PK\x03\x04" + bytes(20),
    ("\ufeff" + _SHORT.decode() * 2).encode("utf-16-le"),
    _SHORT.replace(b"a line", b"\xe4\xff") * 3,
    gzip.compress(_SHORT * 3, mtime=0),
    gzip.compress(_SHORT * 3, mtime=0)[:-4],
    gzip.compress(gzip.compress(_SHORT, mtime=0), mtime=0),
    _SHORT.replace(b"[Controller id=1] a line", b"[Controller id=1 epoch=1] Changed partition t-0 state from A to B")
    * 2,
    b"no log\n" * 3,
    b"[10:00:00,123] INFO a line\n" * 3,
    _SHORT.replace(b"[Controller id=1] a line (logger)", b"a line (org.example.Other)") * 3,
    _SHORT.replace(b"[Controller id=1] a line (logger)", b"a line (kafka.server.KafkaServer)") * 3,
    b"\0\0\0",
]
GZIP: Final = [
    gzip.compress(_SHORT, mtime=0) * 2 + bytes(64),
    gzip.compress(_SHORT, mtime=0)[:-6],
    gzip.compress(bytes(900_000), mtime=0),
]
KACTL: Final = [
    b'{"seq":1,"time_ms":1714557600123,"controller_epoch":1,"kind":"replica","topic":"t","partition":0,"broker":1,'
    b'"from_state":"OnlineReplica","to_state":"OfflineReplica"}\n',
    b'{"seq":1,"time_ms":1714557600123,"controller_epoch":1,"kind":"controller","what":"elected","controller_id":1}\n',
    b'{"seq":1,"time_ms":1714557600123,"controller_epoch":1,"kind":"broker","what":"failed","broker":1}\n',
    b'{"seq":1,"time_ms":1714557600123,"kind":"nothing"}\n{}\n[]\nx\n',
    b'{"kind":"replica","seq":1,"time_ms":1,"controller_epoch":1,"topic":"t","partition":0,"broker":1,'
    b'"from_state":"OnlineReplica","to_state":"OfflineReplica","cause":"x"}\n',
    b'{"kind":"controller","seq":1,"time_ms":1,"controller_epoch":1,"what":"elected","controller_id":1,"cause":"x"}\n',
]
_DUMP_VALUES: Final = b"INFO KafkaConfig values:\n\tbroker.id = 3\n\tnode.id = many\n (kafka.server.KafkaConfig)\n"
# Fenced, unfenced, stopping, and neither.
CHANGED_REGISTRATIONS: Final = [
    b'{"type":"BROKER_REGISTRATION_CHANGE_RECORD","version":0,"data":{"brokerId":1,"brokerEpoch":2,%b}}' % change
    for change in (b'"fenced":1', b'"fenced":-1', b'"fenced":0,"inControlledShutdown":1', b'"fenced":0')
]
# Lines that begin no record: at the beginning of a log, with a mark of the encoding, and settings.
CONTINUED: Final = [
    b"no record\n" + _SHORT,
    b"\xef\xbb\xbf" + _SHORT * 2,
    _SHORT + b"[2024-05-01 10:00:00,123] " + _DUMP_VALUES + _SHORT,
    _SHORT * 3 + b"\tbroker.id = 3\n",
]
REGISTRATIONS: Final = [
    b'{"version":5,"host":"b1","port":1,"endpoints":["x"],"timestamp":"1","jmx_port":-1}',
    b'{"version":5,"host":"b1","port":1,"endpoints":["A://b1:9"],"timestamp":"1","jmx_port":-1}',
    b'{"version":1,"host":"b1","port":9092,"timestamp":"1","jmx_port":-1}',
    b'{"version":1,"host":null,"port":9092,"timestamp":"1","jmx_port":-1}',
    b'{"version":5,"host":"b1","port":9092,"timestamp":"1","jmx_port":-1}',
    b'{"version":5,"host":"b1","port":1,"endpoints":["A://b1:99999"],"timestamp":"1","jmx_port":-1}',
    b'{"version":5,"host":"b1","port":1,"endpoints":["A://b1:9"],"listener_security_protocol_map":{"A":"SSL"},'
    b'"features":{"a":{"min_version":1,"max_version":2}},"timestamp":"1","jmx_port":-1}',
    b'{"version":5,"host":"b1","port":1,"endpoints":["A://b1:9"],"listener_security_protocol_map":{"B":"SSL"},'
    b'"timestamp":"1","jmx_port":-1}',
]
USERS: Final = [
    b'{"version":1,"config":{"SCRAM-SHA-256":"salt=c2FsdA==,stored_key=a2V5,server_key=a2V5,iterations=1"}}',
    b'{"version":1,"config":{"SCRAM-SHA-256":"salt=c2F,stored_key=a2V5,server_key=a2V5,iterations=4096"}}',
    b'{"version":1,"config":{}}',
]
BEARERS: Final = [
    b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBh==\x01\x01",
    b"n,a=user@example.com,\x01host=server.example.com\x01port=143\x01auth=Bearer a.b-c\x01\x01",
    b"n,,\x01auth=Basic x\x01\x01",
    b"p=tls-unique,,\x01auth=Bearer x\x01\x01",
    b"n,,\x01auth=Bearer " + b"x" * 17_000 + b"\x01\x01",
]
_KEYS: Final = f'"salt":"c2FsdA==","stored_key":"{"A" * 43}=","server_key":"{"A" * 43}="' + "}\n"
_USER: Final = '{"name":"ops","mechanism":"SCRAM-SHA-256","iterations":4096,'
USER_FILES: Final = [
    (_USER + _KEYS).encode(),
    ((_USER + _KEYS) * 2).encode(),
    (_USER + _KEYS + _USER.replace("256", "512") + _KEYS).encode(),
    (_USER.replace("ops", " ") + _KEYS).encode(),
]
ACLS: Final = [
    b'{"version":1,"acls":[{"principal":"User:a","permissionType":"X","host":"*","operation":"Y"}]}',
]
PRODUCER_IDS: Final = [
    b'{"version":1,"broker":1,"block_start":"9","block_end":"1"}',
    b'{"version":1,"broker":1,"block_start":"9","block_end":"99999999999999999999"}',
]
# Width of the values, number of rows, type of the values.
COLUMNS: Final = [
    b"\x04\x02\x00" + bytes(8),
    b"\x01\x04\x01" + bytes(4),
    b"\x02\x02\x02" + bytes(9),
    b"\x01\x10\x08" + bytes(16),
    b"\x02\x10\x08" + bytes(32),
    b"\x01\x02\x06\x01\x00",
]
# Answers to a request for one topic, whose id is 1 to 16: no topic, partitions with tagged fields, a topic with tagged
# fields, announced partitions that are missing, fewer than none, names that are no UTF-8, no name,
# 127 partitions, and more than 16,000.
_ID: Final = bytes(range(1, 17))
_HEAD: Final = b"\0\0\0\x09\0\0\0"
_TAG: Final = b"\1\0\1\xff"
PARTITION_ERRORS: Final = [
    _HEAD + b"\1\0",
    _HEAD + b"\2" + _ID + b"\2" + bytes(6) + _TAG + b"\0\0",
    _HEAD + b"\2" + _ID + b"\2" + bytes(7) + _TAG + b"\0",
    _HEAD + b"\3" + _ID + b"\x7f\0" + _ID + b"\1\0\0",
    _HEAD + b"\2" + _ID + b"\0" + bytes(16),
    _HEAD + b"\2\2\xff" + bytes(8),
    _HEAD + b"\2\0" + bytes(8),
    _HEAD + b"\2" + _ID + b"\x80\1" + bytes(7 * 127) + b"\0\0",
    _HEAD + b"\2" + _ID + b"\x80\x80\1" + bytes(7),
]


def frame(kind: int, flags: int, stream: int, head: int, size: int) -> bytes:
    """Returns a frame of the tcp network with any header."""
    return HEADER.pack(HEADER.size - 4 + size, kind, flags, 0, stream, head) + bytes(size)


FRAMES: Final = [
    frame(3, 1, 1, 0, 0),
    frame(3, 1, 1, 20, 20) + frame(4, 1, 1, 20, 20),
    b"".join(frame(3, 1, 1, 4000, 4000) for _ in range(5)),
    frame(3, 9, 1, 10, 20) + frame(3, 1, 1, 20, 20),
    frame(200, 0, 1, 20, 20),
]

# Of listeners: an in-sync replica with a tagged field, and a topic without a name.
REQUESTS: Final = {
    "request AlterPartition": [
        b"\3" + bytes(12) + b"\2" + bytes(16) + b"\2" + bytes(8) + b"\2" + bytes(12) + _TAG + bytes(8)
    ],
    "request DeleteTopics": [b"\4\2\0t\0"],
}
