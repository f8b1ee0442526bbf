"""Tests of Kafka's control protocol. kio, generated from Kafka's message specification, is the reference codec."""
