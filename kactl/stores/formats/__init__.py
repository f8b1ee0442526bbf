"""Formats of stored records: Kafka's JSON, and its conversion from and to columns. No I/O, and no store."""
