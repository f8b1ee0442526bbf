"""Program of a client in Python; those in Java and Go are beside it."""
