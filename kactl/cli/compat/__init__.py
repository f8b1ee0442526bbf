"""`kactl compat`: commands with the flags and the output lines of Kafka's own tools, for scripts that know these."""
