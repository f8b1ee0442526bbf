"""Transports: ways to carry a request to a broker and its answer back."""
