"""The deciding part: messages, state, machines, outbound requests and what-if; without I/O, clock and chance."""
