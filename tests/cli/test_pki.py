"""`kactl pki`, `[network]` and the checks of `kactl doctor`: from three commands to participants with certificates."""

import contextlib
import json
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import anyio
import pytest

import kactl
from kactl.cli.network import BesideKafka, network_of, tcp_network
from kactl.cli.serving import embedded
from kactl.config.file import load
from kactl.model import Broker
from kactl.model.errors import BadConfig, NotAuthorized
from kactl.runtime import reloading
from kactl.testing.contracts.link_support import ContractOffice, ContractPort, opened, until
from kactl.transports.base import Connection
from kactl.transports.memory import MemoryHub
from kactl.transports.tcp.identity import Identity, Role
from tests.support.certificates import Authority
from tests.support.processes import free_port

from .server import kactl as run

LISTEN = "127.0.0.1:0"


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the documented commands."""
    folder = tmp_path_factory.mktemp("made") / "pki"
    names = [f"participant/{broker}" for broker in (1, 2)]
    for arguments in (
        ["init", str(folder), "--cluster", "east"],
        ["issue", str(folder), "controller/0", *names],
        ["issue", str(folder), "participant/7"],
    ):
        done = run("pki", *arguments)
        assert done.code == 0, done.err
    return folder


def tls_of(pki: Path, name: str) -> kactl.Tls:
    return kactl.Tls(ca=pki / "ca.pem", cert=pki / f"{name}.pem", key=pki / f"{name}.key")


def options(pki: Path, **more: object) -> dict[str, object]:
    files = {"ca": pki / "ca.pem", "cert": pki / "controller-0.pem", "key": pki / "controller-0.key"}
    return {
        "node-id": 0,
        "cluster": "east",
        "network.listen": LISTEN,
        **{f"network.{key}": str(path) for key, path in files.items()},
        **more,
    }


def test_keys_are_readable_by_their_owner_only(pki: Path) -> None:
    for name in ("ca", "controller-0", "participant-7"):
        assert stat.S_IMODE((pki / f"{name}.key").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["init", "{pki}"], "exists"),
        (["issue", "{pki}", "participant/7"], "exists"),
        (["issue", "{pki}", "broker/7"], "is no identity"),
        (["issue", "{pki}", "participant"], "is no identity"),
        (["issue", "{pki}/elsewhere", "participant/7"], "has no authority"),
        (["issue", "{pki}", "controller/one"], "is no identity"),
        (["issue", "{pki}", "participant/-1"], "is no identity"),
        (["issue", "{pki}", "participant/3?x"], "is no identity"),
        (["issue", "{pki}", "spectator/a/b"], "is no identity"),
        (["issue", "{pki}", f"spectator/{'x' * 65}"], "is no identity"),
        (["issue", "{pki}", "participant/9", "--days", "99999999"], "--days"),
        (["init", "{pki}/other", "--cluster", ""], "is no name of a cluster"),
        (["init", "{pki}/other", "--cluster", "two\nlines"], "is no name of a cluster"),
    ],
)
def test_mistakes_are_explained(pki: Path, arguments: Sequence[str], text: str) -> None:
    before = sorted(pki.iterdir())

    done = run("pki", *(argument.format(pki=pki) for argument in arguments))

    assert done.code != 0
    assert text in done.err
    assert sorted(pki.iterdir()) == before


@pytest.mark.parametrize("key", ["ca", "cert", "key"])
def test_unreadable_file_of_the_network_is_named_by_its_key(
    pki: Path, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = load(None, {}, options(pki, **{f"network.{key}": "/gone.pem"}))

    with pytest.raises(BadConfig, match=rf"^network\.{key}: /gone\.pem cannot be read"):
        network_of(config)

    assert not caplog.records


@pytest.mark.parametrize(("identity", "file"), [("worker-a", "worker-a"), ("*", "any")])
def test_certificate_names_a_participant_without_an_id(pki: Path, identity: str, file: str) -> None:
    made = run("pki", "issue", str(pki), f"participant/{identity}")

    assert made.code == 0, made.err
    assert (pki / f"participant-{file}.pem").exists()


def test_failed_certificate_leaves_no_files(pki: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pki"
    shutil.copytree(pki, folder)
    (folder / "ca.key").write_text("no key")
    before = sorted(folder.iterdir())

    failed = run("pki", "issue", str(folder), "participant/3")

    assert failed.code != 0
    assert "openssl has failed" in failed.err
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("cluster", ["a b", "a/b", "x,DNS:other.example"])
def test_identity_names_any_cluster(cluster: str, tmp_path: Path) -> None:
    folder = tmp_path / "pki"
    made = [run("pki", "init", str(folder), "--cluster", cluster), run("pki", "issue", str(folder), "participant/3")]

    (uri,) = tls_of(folder, "participant-3").own_certificate().uris
    assert [done.code for done in made] == [0, 0]
    assert Identity.parse(uri) == Identity(cluster, Role.PARTICIPANT, "3")


@pytest.mark.anyio
async def test_participant_of_another_program_joins_a_server(pki: Path, tmp_path: Path) -> None:
    """The server runs two participants itself, which use the same network. The third one needs no store."""
    server = options(
        pki,
        **{
            "participants.count": 2,
            "api.listen": LISTEN,
            "store.path": str(tmp_path / "kactl.db"),
            "store.session-timeout": "4s",
        },
    )
    async with embedded(load(None, {}, server), note=lambda text: None) as running:
        controller = running.controller
        assert isinstance(controller.network, kactl.TcpNetwork)
        network = kactl.TcpNetwork(
            controllers=[str(controller.network.address)], cluster="east", tls=tls_of(pki, "participant-7")
        )
        async with kactl.Participant(7, network=network) as participant:
            await controller.create_topic("orders", assignment={0: [7, 1, 2]})
            await until(lambda: participant.leadership("orders-0") is not None)
            assert running.participants is not None
            await until(lambda: running.participants[1].leader("orders-0") == 7)  # type: ignore[index]


@pytest.mark.anyio
async def test_changed_secret_opens_new_links_and_ends_others(tmp_path: Path) -> None:
    earlier, later = "a secret of 16 bytes", "another secret of 16 bytes"
    file = tmp_path / "secret"

    def put(secret: str) -> None:
        file.write_text(secret)
        file.chmod(0o600)

    def participant(number: int, secret: str) -> kactl.Participant:
        network = kactl.TcpNetwork(controllers=[str(address)], secret=secret)
        return kactl.Participant(number, network=network, session_timeout_ms=60_000)

    put(earlier)
    server = {
        "node-id": 0,
        "participants.count": 0,
        "api.listen": LISTEN,
        "network.listen": LISTEN,
        "network.secret-file": str(file),
        "store.path": str(tmp_path / "kactl.db"),
        "log.folder": str(tmp_path / "log"),
    }
    async with embedded(load(None, {}, server), note=lambda text: None) as running:
        network = running.controller.network
        assert isinstance(network, kactl.TcpNetwork)
        address = network.address
        async with participant(1, earlier) as first:
            await first.wait_linked()
            put(later)
            is_linked = False
            with anyio.fail_after(60):
                while not is_linked:
                    reloading.request()
                    with contextlib.suppress(NotAuthorized):  # the file has not been read yet
                        async with participant(2, later) as second:
                            is_linked = await second.wait_linked() == second.epoch

            view = running.controller.links.view(running.controller.cluster.brokers[1])
            assert view is not None
            assert not view.is_linked  # by the earlier secret, which does not open another one
            with pytest.raises(NotAuthorized, match="does not know the shared secret"):
                async with participant(3, earlier):
                    pass


@pytest.mark.anyio
async def test_files_that_cannot_be_used_are_a_failed_reload(tmp_path: Path) -> None:
    file, local = tmp_path / "secret", tmp_path / "security" / "local.token"
    file.write_text("a secret of 16 bytes")
    file.chmod(0o600)
    server = {
        "node-id": 0,
        "participants.count": 0,
        "api.listen": LISTEN,
        "network.listen": LISTEN,
        "network.secret-file": str(file),
        "security.folder": str(local.parent),
        "store.path": str(tmp_path / "kactl.db"),
    }

    async def reloaded(gauge: str) -> None:
        headers = {"Authorization": f"Bearer {local.read_text().strip()}"}
        async with aiohttp.ClientSession(running.address.url, headers=headers) as client:
            text = ""
            while f"kactl_security_reload_failed {gauge}" not in text:
                reloading.request()
                async with client.get("/metrics") as response:
                    text = await response.text()

    with anyio.fail_after(60):
        async with embedded(load(None, {}, server), note=lambda text: None) as running:
            await reloaded("0.0")
            file.write_text("")
            await reloaded("1.0")
            file.write_text("another secret of 16 bytes")
            await reloaded("0.0")


class _Brokers:
    """Transport to Kafka brokers."""

    def connect(self, broker: Broker) -> Connection:
        raise LookupError(broker.id)


@pytest.mark.anyio
async def test_kafka_brokers_and_participants_have_their_own_transports() -> None:
    network = BesideKafka(MemoryHub(), _Brokers())
    port = ContractPort(1)
    async with network.controller_side(ContractOffice()) as transport, network.participant_side(port) as link:
        await opened(link)

        transport.connect(Broker(1, 7, incarnation=port.incarnation))
        with pytest.raises(LookupError, match="1"):
            transport.connect(Broker(1, 7))
        async with network.spectator_side():
            pass


# -- the configuration -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"network.listen": "here"}, "network.listen: 'here' is not an address"),
        ({"network.controllers": ["a:1", "b"]}, "network.controllers: 'b' is not an address"),
        ({"network.advertise": "a:70000"}, "network.advertise: 'a:70000' is not an address"),
        ({"network.listen": LISTEN, "network.cert": "c"}, "network.cert: needs the others"),
        ({"network.listen": LISTEN, "network.crl": "c"}, "network.crl: has no effect without TLS"),
        ({"network.advertise": "a:1"}, "network.advertise: has no effect without listen"),
        ({"network.secret-file": "s"}, "network.secret-file: has no effect without listen"),
    ],
)
def test_invalid_network_is_rejected(changes: dict[str, object], text: str) -> None:
    with pytest.raises(BadConfig, match="network") as raised:
        load(None, {}, {"node-id": 0, **changes})
    assert text in str(raised.value)


@pytest.mark.anyio
async def test_secret_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("a secret of some length\n")
    file.chmod(0o600)
    network = tcp_network(load(None, {}, {"node-id": 0, "network.listen": LISTEN, "network.secret-file": str(file)}))
    async with network.controller_side(ContractOffice(0)):
        other = kactl.TcpNetwork(controllers=[str(network.address)], secret="a secret of some length")
        async with other.participant_side(ContractPort(1)) as link:
            await opened(link)

    file.chmod(0o644)
    with pytest.raises(BadConfig, match="others can use"):
        tcp_network(load(None, {}, {"node-id": 0, "network.listen": LISTEN, "network.secret-file": str(file)}))


# -- the certificate of a server ---------------------------------------------------------------------------------------


def served(pki: Path, cert: str, participants: int) -> None:
    files = {"network.cert": str(pki / f"{cert}.pem"), "network.key": str(pki / f"{cert}.key")}
    network_of(load(None, {}, options(pki) | files), participants=participants)


def test_server_refuses_the_certificate_of_another_program(pki: Path) -> None:
    served(pki, "controller-0", participants=2)

    with pytest.raises(BadConfig, match=r"names kactl://east/participant/7.*issue DIR controller/0`$"):
        served(pki, "participant-7", participants=0)
    with pytest.raises(
        BadConfig, match="controller/0 participant/1 participant/2 participant/3`, or run no participants"
    ):
        served(pki, "controller-0", participants=3)


def test_server_starts_with_a_certificate_that_has_expired(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Authority(tmp_path, "ca").sign("node", names="URI:kactl://east/controller/0", days="-1")
    served(tmp_path, "node", participants=0)

    assert "node.pem" in caplog.text
    assert "expired" in caplog.text


# -- doctor ------------------------------------------------------------------------------------------------------------


def checks_of(file: Path) -> dict[str, dict[str, str]]:
    done = run("doctor", "-o", "json", "--config", str(file), "--server", "http://127.0.0.1:1")
    return {check["check"]: check for check in json.loads(done.out)}


def written(folder: Path, pki: Path, controllers: Sequence[str], cert: str = "controller-0") -> Path:
    file = folder / "kactl.toml"
    lines = ["node-id = 0", 'cluster = "east"', "[network]", f'listen = "{LISTEN}"']
    lines += [f"controllers = {json.dumps(list(controllers))}", f'ca = "{pki / "ca.pem"}"']
    lines += [f'cert = "{pki / cert}.pem"', f'key = "{pki / cert}.key"']
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.mark.anyio
async def test_doctor_checks_the_certificate_and_all_controllers(pki: Path, tmp_path: Path) -> None:
    network = kactl.TcpNetwork(listen=LISTEN, cluster="east", tls=tls_of(pki, "controller-0"))
    closed = f"127.0.0.1:{free_port()}"
    async with network.controller_side(ContractOffice(0)):
        address = str(network.address)
        file = written(tmp_path, pki, [address, closed])
        checks = await anyio.to_thread.run_sync(checks_of, file)

    certificate = checks[f"certificate {pki / 'controller-0.pem'}"]
    assert certificate["result"] == "pass"
    assert certificate["value"] in ("364 days", "365 days")
    assert "kactl://east/controller/0" in certificate["detail"]
    assert checks[f"controller {address}"]["value"] == "kactl://east/controller/0"
    assert checks[f"controller {closed}"]["result"] == "FAIL"


@pytest.mark.parametrize(("days", "result"), [("-1", "FAIL"), ("3", "WARN"), ("30", "pass")])
def test_doctor_sees_when_a_certificate_expires(tmp_path: Path, days: str, result: str) -> None:
    signed = Authority(tmp_path, "ca").sign("node", names="URI:kactl://east/controller/0", days=days)

    checks = checks_of(written(tmp_path, tmp_path, [], "node"))

    assert checks[f"certificate {signed.cert}"]["result"] == result


def test_doctor_sees_a_file_that_is_no_certificate(pki: Path, tmp_path: Path) -> None:
    (tmp_path / "x.pem").write_text("no certificate")
    (tmp_path / "x.key").touch()
    (tmp_path / "ca.pem").touch()

    assert checks_of(written(tmp_path, tmp_path, [], "x"))[f"certificate {tmp_path / 'x.pem'}"]["result"] == "FAIL"
