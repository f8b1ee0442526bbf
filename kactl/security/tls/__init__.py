"""TLS of connections: files of certificates, contexts, and the protocol in turns."""
