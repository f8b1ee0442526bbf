"""Certificates of outgoing connections that are replaced while the process runs."""

import logging
import os
import shutil
import ssl
from pathlib import Path

import pytest

from kactl.cli.client_tls import client_tls
from kactl.model.errors import BadConfig
from tests.support.certificates import Authority, Signed


class Files:
    """The files of a configuration."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.ca, self.cert, self.key = (folder / name for name in ("ca.pem", "cert.pem", "key.pem"))

    def put(self, authority: Authority, signed: Signed) -> None:
        """Replace all files, as cert-manager does."""
        for source, target in ((authority.cert, self.ca), (signed.cert, self.cert), (signed.key, self.key)):
            copied = target.with_suffix(".new")
            shutil.copy(source, copied)
            os.replace(copied, target)

    def context(self) -> ssl.SSLContext:
        context = client_tls("store", ca=str(self.ca), cert=str(self.cert), key=str(self.key))
        assert context is not None
        return context


def presented(client: ssl.SSLContext, server: ssl.SSLContext) -> object:
    """Perform a handshake in memory. Returns the subject of the client's certificate, as the server sees it."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    accepting = server.wrap_bio(there, back, server_side=True)
    dialing = client.wrap_bio(back, there, server_hostname="localhost")
    for _ in range(3):
        for side in (dialing, accepting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    certificate = accepting.getpeercert()
    assert certificate
    return certificate["subject"]


def server_of(authority: Authority, name: str = "server") -> ssl.SSLContext:
    signed = authority.sign(name, names="DNS:localhost", days="2")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.cert))
    context.load_cert_chain(signed.cert, signed.key)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "files")


def test_new_connection_presents_the_replaced_certificate(tmp_path: Path, files: Files) -> None:
    authority = Authority(tmp_path)
    server = server_of(authority)
    files.put(authority, authority.sign("first", names="DNS:first", days="2"))
    context = files.context()
    before = presented(context, server)

    files.put(authority, authority.sign("second", names="DNS:second", days="2"))

    assert "first" in str(before)
    assert "second" in str(presented(context, server))


def test_new_connection_trusts_the_replaced_authority(tmp_path: Path, files: Files) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    files.put(old, old.sign("first", names="DNS:first", days="2"))
    context = files.context()
    with pytest.raises(ssl.SSLError):
        presented(context, server_of(new))

    files.put(new, new.sign("second", names="DNS:second", days="2"))

    assert "second" in str(presented(context, server_of(new, "other")))


def test_pair_that_does_not_fit_keeps_the_previous_one(
    tmp_path: Path, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    server = server_of(authority)
    files.put(authority, authority.sign("first", names="DNS:first", days="2"))
    context = files.context()

    with caplog.at_level(logging.INFO):
        shutil.copy(authority.sign("second", names="DNS:second", days="2").cert, files.cert)  # without its key

        assert "first" in str(presented(context, server))
        assert "first" in str(presented(context, server))

    assert caplog.text.count("the earlier ones stay in use: store.key") == 1


def test_file_that_cannot_be_used_at_the_start_is_an_error(tmp_path: Path, files: Files) -> None:
    authority = Authority(tmp_path)
    files.put(authority, authority.sign("first", names="DNS:first", days="2"))
    files.ca.write_text("nothing")

    with pytest.raises(BadConfig, match=r"contains no certificate in PEM"):
        files.context()
    assert client_tls("store", ca="", cert="", key="") is None


def test_settings_verify_as_those_of_the_standard_library(tmp_path: Path, files: Files) -> None:
    authority = Authority(tmp_path)
    files.put(authority, authority.sign("first", names="DNS:first", days="2"))

    context, standard = files.context(), ssl.create_default_context(cafile=str(authority.cert))

    for name in ("verify_mode", "verify_flags", "check_hostname", "minimum_version", "options"):
        assert getattr(context, name) == getattr(standard, name)
