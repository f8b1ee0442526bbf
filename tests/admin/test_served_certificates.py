"""Expiry of certificates that a process presents: gauge, warning and health check."""

import shutil
import ssl
from pathlib import Path

import pytest

from kactl.admin.served_certificates import DAY_S, LOOK_S, ServedCertificates
from kactl.model.errors import BadConfig
from kactl.security.tls import server_tls
from kactl.security.tls.certificate_file import expiry_in
from kactl.security.tls.server_tls import ServerTls
from kactl.transports.tcp.tls import Tls
from tests.admin.conftest import served
from tests.admin.test_health import checks_of
from tests.security.access.der import BEGIN, certificate, element
from tests.support.certificates import Authority, Signed
from tests.support.clocks import ManualClock

pytestmark = pytest.mark.anyio
DAYS = 86_400


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def signed(authority: Authority) -> Signed:
    return authority.sign("server", days="10")


class Presented:
    """A certificate in use."""

    def __init__(self, expires_s: float | None, cert: str = "c.pem") -> None:
        self.cert = cert
        self.expires_s = expires_s


# -- reading -----------------------------------------------------------------------------------------------------------


def test_first_certificate_of_a_file_counts(tmp_path: Path) -> None:
    blocks = [
        ssl.DER_cert_to_PEM_cert(certificate(b"", element(0x30, BEGIN + element(0x17, end))))
        for end in (b"700101000001Z", b"700101000002Z")
    ]
    chain, other = tmp_path / "chain.pem", tmp_path / "other.pem"
    chain.write_text(f"text before\n{''.join(blocks)}")
    other.write_text("-----BEGIN CERTIFICATE-----\nnot base64\n-----END CERTIFICATE-----\n")

    assert expiry_in(chain) == 1
    assert expiry_in(other) is None
    assert expiry_in(tmp_path / "missing.pem") is None


# -- reporting ---------------------------------------------------------------------------------------------------------


async def test_certificate_that_ends_soon_is_logged_each_day(caplog: pytest.LogCaptureFixture) -> None:
    """S-23. From 14 days before the end; one that is replaced is not logged any more."""
    now_s = 1_000_000.0
    certificates = ServedCertificates()
    ending = Presented(now_s + 14 * DAY_S, "ending.pem")
    certificates.add("api", ending)
    certificates.add("kafka", Presented(now_s + 90 * DAY_S, "fresh.pem"))
    certificates.add("network", Presented(None))
    looks = 0

    class Over(Exception):
        pass

    async def sleep(seconds: float) -> None:
        nonlocal now_s, looks
        assert seconds == LOOK_S
        now_s, looks = now_s + seconds, looks + 1
        if looks == 48:
            ending.expires_s = now_s + 90 * DAY_S
        if looks == 96:
            raise Over

    with pytest.raises(Over):
        await certificates.run(lambda: now_s, sleep)

    assert [record.getMessage() for record in caplog.records] == [
        f"the certificate of api: ending.pem expires in {days} days: replace the file, which is then loaded again"
        for days in (14, 13)
    ]
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    assert [labels["interface"] for _, labels in certificates.rows()] == ["api", "kafka"]


@pytest.mark.parametrize(
    ("left_s", "text"),
    [(3 * DAY_S, "expires in 3 days"), (30 * 3600, "expires in 30 h"), (0, "has expired"), (-1, "has expired")],
)
def test_remaining_time_is_stated(left_s: float, text: str) -> None:
    certificates = ServedCertificates()
    certificates.add("api", Presented(left_s + 100))

    (expiry,) = certificates.expiries(100)

    assert str(expiry) == f"api: c.pem {text}"


async def test_server_shows_when_its_certificate_expires(signed: Signed) -> None:
    """S-23."""
    expires_s = expiry_in(signed.cert)
    assert expires_s is not None
    settings = {"api.tls.cert": str(signed.cert), "api.tls.key": str(signed.key)}
    for before_s, result in ((15 * DAYS, "pass"), (13 * DAYS, "warn"), (-1, "fail")):
        clock = ManualClock(int((expires_s - before_s) * 1000))
        async with served(brokers=None, settings=settings, clock=clock) as server:
            server.http.connector._ssl = False  # type: ignore[union-attr]  # it may have expired
            check = (await checks_of(server))["certificates"]
            metrics = (await server.get("/metrics")).body.decode()

        assert check.result == result
        assert (str(signed.cert) in check.detail) == (result != "pass")
        (line,) = [line for line in metrics.splitlines() if line.startswith("kactl_certificate_expiry_seconds{")]
        assert line.startswith('kactl_certificate_expiry_seconds{interface="api"} ')
        assert float(line.split()[1]) == expires_s


async def test_replaced_certificate_counts_once_it_is_in_use(
    authority: Authority, signed: Signed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-23. One that cannot be used does not hide the end of the one in use."""
    monkeypatch.setattr(server_tls, "POLL_S", 0.01)
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    shutil.copy(signed.cert, cert)
    shutil.copy(signed.key, key)
    tls = ServerTls("api.tls", cert=str(cert), key=str(key))
    successor = authority.sign("successor", days="90")

    shutil.copy(successor.cert, cert)
    await tls.refresh()
    assert (tls.reload_failed, tls.expires_s) == (True, expiry_in(signed.cert))

    shutil.copy(successor.key, key)
    await tls.refresh()
    assert (tls.reload_failed, tls.expires_s) == (False, expiry_in(successor.cert))


def test_network_keeps_the_certificate_in_use(authority: Authority, signed: Signed, tmp_path: Path) -> None:
    cert = tmp_path / "cert.pem"
    shutil.copy(signed.cert, cert)
    tls = Tls(ca=authority.cert, cert=cert, key=signed.key)
    assert tls.expires_s is None
    tls.server_context()
    successor = authority.sign("successor-of-network", days="90")
    shutil.copy(successor.cert, cert)

    with pytest.raises(BadConfig):
        tls.reload()

    assert tls.expires_s == expiry_in(signed.cert)
