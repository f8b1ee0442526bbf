"""Interfaces that are insecure by consent: Kafka listeners, the network of participants, stores and brokers."""

import itertools
import socket
from pathlib import Path
from typing import Any

import pytest

from kactl.admin.exposure import checked, names
from kactl.admin.exposure_report import ExposureReport
from kactl.cli import setup
from kactl.config.file import load
from kactl.config.settings import Config
from kactl.model.errors import BadConfig
from tests.cli.server import kactl

ZOOKEEPER = '[store]\nkind = "zookeeper"\nconnect = "127.0.0.1:1"\n'
FILES = 'cert = "/no/cert.pem"\nkey = "/no/key.pem"\n'
# For each interface: the rest of a file without and with credentials; {} is the address.
INTERFACES = {
    "api": ('[api]\nlisten = "{}:8080"\n', f'[api]\nlisten = "{{}}:8080"\n[api.tls]\n{FILES}'),
    "kafka.A": (
        '[kafka]\nlisteners = ["A://{}:9090"]\nadvertised-listeners = ["A://kactl.example:9090"]\n',
        '[kafka]\nlisteners = ["A://{}:9090"]\nadvertised-listeners = ["A://kactl.example:9090"]\n'
        f'[kafka.protocols]\nA = "SASL_SSL"\n[kafka.tls]\n{FILES}',
    ),
    "network": (
        '[network]\nlisten = "{}:7373"\nsecret-file = "/no/secret"\n',
        f'[network]\nlisten = "{{}}:7373"\nca = "/no/ca.pem"\n{FILES}',
    ),
}
LOOPBACK = ("127.0.0.1", "[::1]")
OTHERS = ("0.0.0.0", "192.0.2.1")


def configured(folder: Path, text: str) -> Config:
    file = folder / "kactl.toml"
    file.write_text(f"node-id = 900\n{text}")
    return load(file)


def allowing(*interfaces: str) -> str:
    return f"[security]\nallow-insecure = [{', '.join(f'{name!r}' for name in interfaces)}]\n"


# -- what is listened on -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_secure", [False, True], ids=["without", "with"])
@pytest.mark.parametrize(("interface", "host"), [*itertools.product(INTERFACES, LOOPBACK + OTHERS)])
def test_refused_server_binds_and_writes_nothing(
    interface: str, host: str, is_secure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-01."""
    started: list[Any] = []
    bound: list[Any] = []
    monkeypatch.setattr(setup, "run", lambda serve, **_: started.append(serve))
    monkeypatch.setattr(setup, "check_free", lambda *_: None)
    monkeypatch.setattr(socket.socket, "bind", lambda _, address: bound.append(address))
    file = tmp_path / "kactl.toml"
    file.write_text(f"node-id = 900\n{ZOOKEEPER}{INTERFACES[interface][is_secure].format(host)}")

    done = kactl("controller", "--config", file, cwd=tmp_path)

    if is_secure or host in LOOPBACK:
        assert (done.code, len(started)) == (0, 1), done.err
    else:
        assert (done.code, started) == (2, [])
        assert f'name "{interface}" in security.allow-insecure' in done.err
    assert bound == []
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "",
            "INTERNAL://10.0.0.9:9090 is PLAINTEXT and can be reached by others: set kafka.protocols.INTERNAL to "
            "SASL_SSL or SSL",
        ),
        (
            '[kafka.protocols]\nINTERNAL = "SASL_PLAINTEXT"\n',
            "INTERNAL://10.0.0.9:9090 is SASL_PLAINTEXT and can be reached by others: set kafka.protocols.INTERNAL to "
            "SASL_SSL",
        ),
        (
            f'[kafka.protocols]\nINTERNAL = "SSL"\n[kafka.tls]\n{FILES}',
            "INTERNAL://10.0.0.9:9090 is SSL without client certificates and can be reached by others: set "
            'kafka.tls.client-auth to "required" or kafka.protocols.INTERNAL to SASL_SSL',
        ),
    ],
)
def test_open_listener_is_refused_with_its_remedy(text: str, message: str, tmp_path: Path) -> None:
    """S-01. The file is named, as for every mistake in it."""
    file = tmp_path / "kactl.toml"
    file.write_text(f'node-id = 900\n{ZOOKEEPER}[kafka]\nlisteners = ["INTERNAL://10.0.0.9:9090"]\n{text}')

    done = kactl("controller", "--config", file)

    consent = 'or name "kafka.INTERNAL" in security.allow-insecure'
    assert done.err == f"error: {file}: kafka.listeners: {message}, {consent}\n"


def test_listener_without_an_authorizer_needs_consent(tmp_path: Path) -> None:
    """S-45."""
    text = ZOOKEEPER + INTERFACES["kafka.A"][1].format("192.0.2.1").replace("[kafka]", '[kafka]\nauthorizer = "none"')
    with pytest.raises(BadConfig) as refused:
        checked(configured(tmp_path, text))

    assert str(refused.value) == (
        'kafka.authorizer: "none" lets every client of A://192.0.2.1:9090 do everything: write "acls" or '
        '"super-users", or name "kafka.A" in security.allow-insecure'
    )
    assert checked(configured(tmp_path, text + allowing("kafka.A")))


@pytest.mark.parametrize("client_auth", ["optional", "required"])
def test_client_certificates_authenticate_a_listener(client_auth: str, tmp_path: Path) -> None:
    text = (
        f'{ZOOKEEPER}[kafka]\nlisteners = ["A://192.0.2.1:9090"]\n[kafka.protocols]\nA = "SSL"\n'
        f'[kafka.tls]\n{FILES}client-auth = "{client_auth}"\nclient-ca = "/no/ca.pem"\n'
    )
    assert checked(configured(tmp_path, text)) == ()


def test_listeners_without_a_server_are_not_in_use(tmp_path: Path) -> None:
    """`kactl up` has no Kafka listener, whatever the file contains."""
    config = configured(tmp_path, '[kafka]\nlisteners = ["A://192.0.2.1:9090"]\n')

    assert checked(config) == ()
    assert names(config) == ("api",)


# -- consent -----------------------------------------------------------------------------------------------------------

# Everything is open: each name alone is not sufficient, and all of them are.
OPEN = (
    '[store]\nkind = "zookeeper"\nconnect = "192.0.2.1:2181"\nauth-scheme = "digest"\nuser = "a"\n'
    'password-file = "/no/password"\n'
    '[kafka]\nlisteners = ["A://192.0.2.1:9090", "B://192.0.2.1:9091"]\n'
    '[kafka.client]\nsasl-mechanism = "PLAIN"\nusername = "a"\npassword-file = "/no/password"\n'
    '[api]\nlisten = "192.0.2.1:8080"\n[network]\nlisten = "192.0.2.1:7373"\nsecret-file = "/no/secret"\n'
)
ALL = ("api", "kafka.A", "kafka.B", "network", "store", "brokers")


def test_consent_to_everything_that_is_open_is_accepted(tmp_path: Path) -> None:
    found = checked(configured(tmp_path, OPEN + allowing(*ALL)))

    assert {opening.interface for opening in found if opening.needs_consent} == set(ALL)


@pytest.mark.parametrize("name", ALL)
def test_each_name_opens_its_interface_alone(name: str, tmp_path: Path) -> None:
    """S-02."""
    others = [other for other in ALL if other != name]

    with pytest.raises(BadConfig, match=rf'name "{name}" in security\.allow-insecure'):
        checked(configured(tmp_path, OPEN + allowing(*others)))


@pytest.mark.parametrize(
    ("text", "name", "reason"),
    [
        (ZOOKEEPER, "kafka.A", '\'kafka.A\' is no interface of this configuration: use "api", "store", "brokers"'),
        (ZOOKEEPER, "everything", "'everything' is no interface"),
        ("", "store", "'store' is no interface"),
        ("", "network", "'network' is no interface"),
        (ZOOKEEPER + INTERFACES["kafka.A"][0].format("127.0.0.1"), "kafka.A", '"kafka.A" needs no consent: remove it'),
        (ZOOKEEPER + INTERFACES["kafka.A"][1].format("192.0.2.1"), "kafka.A", '"kafka.A" is secure: remove it'),
        (INTERFACES["network"][0].format("127.0.0.1"), "network", '"network" is secure: remove it'),
        (INTERFACES["network"][1].format("192.0.2.1"), "network", '"network" is secure: remove it'),
        (ZOOKEEPER, "brokers", '"brokers" is secure: remove it'),
        (ZOOKEEPER.replace("127.0.0.1", "192.0.2.1"), "store", '"store" needs no consent: remove it'),
    ],
)
def test_consent_that_is_stale_or_unknown_is_an_error(text: str, name: str, reason: str, tmp_path: Path) -> None:
    """S-02."""
    with pytest.raises(BadConfig) as refused:
        checked(configured(tmp_path, text + allowing(name)))

    assert reason in str(refused.value)


def test_consent_does_not_replace_the_secret_of_the_network(tmp_path: Path) -> None:
    config = configured(tmp_path, f'[network]\nlisten = "192.0.2.1:7373"\n{allowing("network")}')

    with pytest.raises(BadConfig, match=r"neither TLS nor a secret: .*, or give secret-file$"):
        checked(config)


# -- what needs no consent, and is shown -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            ZOOKEEPER + INTERFACES["kafka.A"][0].format("127.0.0.1"),
            {"kafka.A": ["kafka.listeners: A://127.0.0.1:9090 authenticates nobody"]},
        ),
        (
            ZOOKEEPER + '[kafka]\nlisteners = ["A://127.0.0.1:9090"]\nbroker-identity = "cluster"\n',
            {"kafka.A": ["kafka.listeners", 'kafka.broker-identity: "cluster" lets every client send']},
        ),
        (
            '[store]\nkind = "zookeeper"\nconnect = "127.0.0.1:1,192.0.2.1:2181/kafka"\n',
            {
                "store": [
                    "store.tls: the connection to 192.0.2.1:2181 has no TLS",
                    "store.user: kactl has no identity at 192.0.2.1:2181",
                ]
            },
        ),
        (
            '[store]\nkind = "zookeeper"\nconnect = "192.0.2.1:2181"\nuser = "a"\npassword-file = "/no/password"\n',
            {"store": ["store.tls"]},
        ),
        (
            '[store]\nkind = "zookeeper"\nconnect = "192.0.2.1:2182"\ntls = true\nca = "/no/ca.pem"\n',
            {"store": ["store.user"]},
        ),
        (
            '[store]\nkind = "zookeeper"\nconnect = "192.0.2.1:2182"\ntls = true\nca = "/no/ca.pem"\n' + FILES,
            {},
        ),
        (
            ZOOKEEPER + '[kafka]\nlisteners = ["A://127.0.0.1:9090"]\nauthorizer = "none"\n'
            '[kafka.protocols]\nA = "SASL_PLAINTEXT"\n',
            {"kafka.A": ['kafka.authorizer: "none" lets every client of A://127.0.0.1:9090 do everything']},
        ),
        (ZOOKEEPER, {}),
    ],
)
def test_insecure_set_ups_of_the_cluster_are_shown(text: str, expected: dict[str, list[str]], tmp_path: Path) -> None:
    """S-03."""
    config = configured(tmp_path, text)
    report = ExposureReport(names(config), checked(config), now_ms=lambda: 7)

    listed = [(item.interface, item.what) for item in report.listed()]
    wanted = [(interface, what) for interface, whats in expected.items() for what in whats]
    assert len(listed) == len(wanted)
    for (interface, what), (wanted_interface, begin) in zip(listed, wanted, strict=True):
        assert (interface, what.startswith(begin)) == (wanted_interface, True), what
    assert {labels["interface"]: value for value, labels in report.rows()} == {
        name: int(name in expected) for name in names(config)
    }


@pytest.mark.anyio
async def test_reminder_is_repeated_each_day(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """S-03."""
    config = configured(tmp_path, ZOOKEEPER.replace("127.0.0.1", "192.0.2.1"))
    report = ExposureReport(names(config), checked(config), now_ms=lambda: 7)
    pauses: list[float] = []

    class Enough(Exception):
        pass

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise Enough

    with pytest.raises(Enough):
        await report.run(sleep)

    assert pauses == [24 * 3600] * 2
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 4  # two reasons, twice
    assert "store is insecure: store.tls: the connection to 192.0.2.1:1 has no TLS" in warnings[0]


def test_reason_that_depends_on_the_cluster_comes_and_goes(caplog: pytest.LogCaptureFixture) -> None:
    now = iter(range(1, 9))
    report = ExposureReport(["brokers"], [], now_ms=lambda: next(now))

    report.update("brokers", "kafka.listener-name", "broker 1")
    report.update("brokers", "kafka.listener-name", "brokers 1 and 2")

    (item,) = report.listed()
    assert (item.what, item.since_ms) == ("kafka.listener-name: brokers 1 and 2", 1)
    assert len(caplog.records) == 1
    report.update("brokers", "kafka.listener-name", "")
    assert report.listed() == ()
    assert report.rows() == [(0, {"interface": "brokers"})]
