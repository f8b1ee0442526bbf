"""Brokers of earlier versions of Kafka, at their own protocol level: `make old-brokers`."""
