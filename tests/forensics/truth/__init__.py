"""The whole pipeline over logs of clusters with a known history; see tests/support/kafka_logs."""
