"""Tests of the tcp network: frames, links, handshake, and the whole network."""
