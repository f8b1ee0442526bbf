"""The order of messages in a login, for any mechanism."""

import pytest

from kactl.security.sasl import Conversation, Plain, SaslError
from kactl.security.sasl.mechanism import ROUNDS_MAX
from tests.support.fake_mechanism import ROUNDS, FakeMechanism, FakeServer


@pytest.mark.parametrize("ends_with_message", [False, True])
def test_mechanism_with_four_rounds_logs_in(ends_with_message: bool) -> None:
    server = FakeServer(ends_with_message=ends_with_message)
    conversation = Conversation(FakeMechanism(ends_with_message=ends_with_message).login("b1"))
    token: bytes | None = conversation.begin()
    while token is not None:
        token = conversation.next(server.reply(token))

    assert server.rounds == ROUNDS


def test_server_that_does_not_finish_is_rejected() -> None:
    class Endless:
        name, is_complete = "ENDLESS", False

        def first(self) -> bytes:
            return b"x"

        def respond(self, challenge: bytes) -> bytes:
            return b"x"

    conversation = Conversation(Endless())
    conversation.begin()
    for _ in range(ROUNDS_MAX - 1):
        assert conversation.next(b"y") == b"x"
    with pytest.raises(SaslError, match=f"did not finish the login in {ROUNDS_MAX} messages"):
        conversation.next(b"y")


def test_message_after_the_end_is_rejected() -> None:
    conversation = Conversation(Plain("alice", "secret"))
    conversation.begin()
    with pytest.raises(SaslError, match="after the end"):
        conversation.next(b"more")


def test_failure_of_a_foreign_mechanism_ends_the_login_alone() -> None:
    with pytest.raises(SaslError, match="the mechanism has failed: RuntimeError: no ticket"):
        Conversation(FakeMechanism(fails=True).login("b1")).begin()
