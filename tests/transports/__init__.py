"""What transports promise, and what each of them does beyond that."""
