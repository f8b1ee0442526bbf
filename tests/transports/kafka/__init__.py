"""Kafka's control protocol, held against kio, which wrote and reads the same messages from their specification."""
