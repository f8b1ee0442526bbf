"""A TLS connection without sockets, to look at what its handshake has agreed on."""

import contextlib
import ssl


class Connected:
    """A connection in memory, after its handshake and its end.

    Args:
        session: of an earlier one, which the client resumes if the server lets it.
        fails: whether the client ends it by something else than TLS, and not in an orderly way.

    Attributes:
        accepting: the server's side.
        session: for another connection of the client.
        is_resumed: whether this one has resumed a session.
        protocol: that ALPN has chosen.

    Raises:
        ssl.SSLError: one side refuses the other.
    """

    def __init__(
        self,
        server: ssl.SSLContext,
        client: ssl.SSLContext,
        session: ssl.SSLSession | None = None,
        *,
        fails: bool = False,
    ) -> None:
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.accepting = accepting = server.wrap_bio(there, back, server_side=True)
        dialing = client.wrap_bio(back, there, server_hostname="localhost", session=session)
        for _ in range(3):
            for side in (dialing, accepting):
                with contextlib.suppress(ssl.SSLWantReadError):
                    side.do_handshake()
        accepting.write(b"x")
        assert dialing.read(1) == b"x"  # and the tickets before it
        self.session, self.is_resumed = dialing.session, dialing.session_reused
        self.protocol = dialing.selected_alpn_protocol()
        if fails:
            there.write(b"no TLS")
            with contextlib.suppress(ssl.SSLError):
                accepting.read(1)
            return
        for side in (dialing, accepting, dialing):
            with contextlib.suppress(ssl.SSLError):
                side.unwrap()
