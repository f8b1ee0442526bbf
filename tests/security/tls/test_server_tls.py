"""TLS of a server whose files change. A session that was verified with the earlier files is not resumed."""

import errno
import os
import shutil
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kactl.model.errors import BadConfig
from kactl.security.tls import server_tls
from kactl.security.tls.certificate_file import expiry_in
from kactl.security.tls.server_tls import ServerTls, certificate_of
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


async def test_certificate_counts_as_long_as_it_would_be_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of connections that began before the files changed."""
    authority = Authority(tmp_path)
    server, client, other = (authority.sign(name) for name in ("server", "client", "other"))
    trusted, listed = tmp_path / "trusted.pem", tmp_path / "listed.pem"
    changes: list[str] = []
    shutil.copy(authority.cert, trusted)
    shutil.copy(authority.revoke(other), listed)
    tls = ServerTls(
        "api.tls", cert=str(server.cert), key=str(server.key), client_auth="required",
        client_ca=str(trusted), crl=str(listed),
    )  # fmt: skip
    tls.on_verification_changed = lambda: changes.append("changed")

    def opened() -> ssl.SSLObject:
        return Connected(tls.context, client_of(authority, client, ssl.TLSVersion.TLSv1_3)).accepting

    async def replace(path: Path, content: bytes) -> None:
        (tmp_path / "new.pem").write_bytes(content)
        (tmp_path / "new.pem").replace(path)
        before = tls.context
        await tls.refresh()
        assert tls.context is not before

    first = opened()
    another_of_the_server = authority.sign("renewed")
    shutil.copy(another_of_the_server.key, server.key)
    await replace(server.cert, another_of_the_server.cert.read_bytes())
    await replace(listed, listed.read_bytes())
    second = opened()
    assert (tls.accepts(first), tls.accepts(second), changes) == (True, True, [])

    await replace(listed, authority.revoke(authority.sign("third")).read_bytes())
    assert (tls.accepts(first), tls.accepts(second), tls.accepts(opened()), changes) == (
        False, False, True, ["changed"],
    )  # fmt: skip

    third = opened()
    await replace(trusted, trusted.read_bytes() + Authority(tmp_path, "added").cert.read_bytes())
    assert (tls.accepts(third), tls.accepts(opened()), len(changes)) == (False, True, 2)

    expires_s = expiry_in(client.cert)
    assert expires_s is not None
    fourth = opened()
    monkeypatch.setattr(server_tls, "time", SimpleNamespace(time=lambda: expires_s - 1))
    assert tls.accepts(fourth)
    monkeypatch.setattr(server_tls, "time", SimpleNamespace(time=lambda: expires_s))
    assert not tls.accepts(fourth)


def test_certificate_of_a_failed_connection_does_not_count(tmp_path: Path) -> None:
    """OpenSSL forgets it, and a client without a certificate may be admitted, too."""
    authority = Authority(tmp_path)
    server, client = authority.sign("server"), authority.sign("client")
    tls = ServerTls(
        "api.tls", cert=str(server.cert), key=str(server.key), client_auth="optional", client_ca=str(authority.cert)
    )
    context = client_of(authority, client, ssl.TLSVersion.TLSv1_3)
    alive, failed = (Connected(tls.context, context, fails=fails).accepting for fails in (False, True))

    assert certificate_of(alive) == ssl.PEM_cert_to_DER_cert(client.cert.read_text(encoding="ascii"))
    assert tls.accepts(alive)
    with pytest.raises(ConnectionResetError, match="the connection has failed"):
        certificate_of(failed)
    assert not tls.accepts(failed)


async def test_client_without_a_certificate_has_none_that_could_end(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.sign("server")
    tls = ServerTls(
        "api.tls", cert=str(server.cert), key=str(server.key), client_auth="optional", client_ca=str(authority.cert)
    )
    opened = Connected(tls.context, ssl.create_default_context(cafile=str(authority.cert))).accepting

    server.key.touch()
    authority.cert.write_bytes(authority.cert.read_bytes() + b"# another content\n")
    await tls.refresh()

    assert opened.context is not tls.context
    assert tls.accepts(opened)


async def test_files_do_not_follow_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Authority(tmp_path).sign("server")
    monkeypatch.chdir(tmp_path)
    tls = ServerTls("api.tls", cert=server.cert.name, key=server.key.name)
    before = tls.context
    monkeypatch.chdir("/")

    server.key.touch()
    await tls.refresh()

    assert tls.context is not before
    assert not tls.reload_failed


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
