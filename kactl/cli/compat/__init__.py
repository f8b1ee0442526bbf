"""`kactl compat`: replacements for Kafka's command-line tools, with the same options and output."""
