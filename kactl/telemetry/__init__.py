"""Metrics, histograms, the event log, health checks, garbage collector tuning."""
