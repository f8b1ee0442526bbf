"""Tests of transports: the shared contract, and the behaviour of each transport."""
