"""Requests to brokers: batching, fan-out per broker, coalescing of queued requests."""
