"""TLS of a server whose files change. A session that was verified with the earlier files is not resumed."""

import errno
import os
import shutil
import ssl
from pathlib import Path
from typing import Any

import pytest

from kactl.errors import BadConfig
from kactl.runtime.server_tls import ServerTls
from tests.support.certificates import Authority, Signed
from tests.support.tls_connection import Connected

pytestmark = pytest.mark.anyio


def client_of(authority: Authority, signed: Signed, version: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.cert))
    context.load_cert_chain(signed.cert, signed.key)
    context.minimum_version = context.maximum_version = version
    return context


@pytest.mark.parametrize(
    ("spoken", "chosen"), [({}, "http/1.1"), ({"protocols": ()}, None), ({"protocols": ("h2", "kafka")}, "kafka")]
)
async def test_protocol_is_chosen_among_those_of_the_server(
    spoken: dict[str, Any], chosen: str | None, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    server = authority.sign("server")
    context = ssl.create_default_context(cafile=str(authority.cert))
    context.set_alpn_protocols(["kafka", "http/1.1"])

    tls = ServerTls("api.tls", cert=str(server.cert), key=str(server.key), **spoken)

    assert Connected(tls.context, context).protocol == chosen


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_revoked_certificate_does_not_resume_its_session(version: ssl.TLSVersion, tmp_path: Path) -> None:
    """A resumed session has the certificate of the first handshake, which is not verified again."""
    authority = Authority(tmp_path)
    server, client, other = (authority.sign(name) for name in ("server", "client", "other"))
    listed = tmp_path / "listed.pem"
    shutil.copy(authority.revoke(other), listed)
    tls = ServerTls(
        "api.tls", cert=str(server.cert), key=str(server.key), client_auth="required",
        client_ca=str(authority.cert), crl=str(listed),
    )  # fmt: skip
    context = client_of(authority, client, version)
    first = Connected(tls.context, context)
    # With TLS 1.3 each resumption would prolong the session.
    assert Connected(tls.context, context, first.session).is_resumed is (version is ssl.TLSVersion.TLSv1_2)

    shutil.copy(authority.revoke(client), tmp_path / "newer.pem")
    (tmp_path / "newer.pem").replace(listed)
    await tls.refresh()

    for session in (None, first.session):
        with pytest.raises(ssl.SSLError, match="revoked"):
            Connected(tls.context, context, session)


async def test_files_that_cannot_be_used_leave_the_context(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.sign("server")
    tls = ServerTls("api.tls", cert=str(server.cert), key=str(server.key))
    before = tls.context
    assert not tls.reload_failed

    shutil.copy(authority.sign("another").cert, server.cert)
    await tls.refresh()
    assert tls.context is before
    assert tls.reload_failed

    server.cert.unlink()
    await tls.refresh()
    assert tls.context is before
    assert tls.reload_failed

    shutil.copy(authority.sign("another").key, server.key)
    shutil.copy(tmp_path / "another.pem", server.cert)
    await tls.refresh()
    assert tls.context is not before
    assert not tls.reload_failed


async def test_each_reason_why_files_cannot_be_loaded_again_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    folder = tmp_path / "etc"
    folder.mkdir()
    cert, key = (shutil.copy(path, folder) for path in authority.sign("server")[:2])
    tls = ServerTls("api.tls", cert=str(cert), key=str(key))

    shutil.rmtree(folder)
    await tls.refresh()
    await tls.refresh()
    folder.touch()
    await tls.refresh()
    await tls.refresh()

    missing, not_a_folder = (text for text in caplog.messages if "cannot be loaded again" in text)
    assert os.strerror(errno.ENOENT) in missing
    assert os.strerror(errno.ENOTDIR) in not_a_folder


@pytest.mark.parametrize(
    ("setting", "content"), [("client_ca", "certificate"), ("crl", "list of revoked certificates")]
)
def test_error_names_what_a_file_lacks(setting: str, content: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.sign("server")
    files: dict[str, Any] = {
        "client_ca": str(authority.cert),
        "crl": str(authority.revoke(server)),
        setting: str(server.key),
    }

    with pytest.raises(BadConfig, match=f"contains no {content} in PEM"):
        ServerTls("api.tls", cert=str(server.cert), key=str(server.key), client_auth="required", **files)
