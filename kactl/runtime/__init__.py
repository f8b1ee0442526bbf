"""Process-level helpers: loggers, escaping of untrusted text, background tasks of a block."""
