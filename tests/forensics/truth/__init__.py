"""The whole pipeline over logs of clusters whose truth is known; see tests/support/kafka_logs."""
