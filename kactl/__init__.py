"""A cluster controller with Kafka's semantics: it decides who leads every partition and tells every broker."""
