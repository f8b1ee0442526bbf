"""Known log lines, one module per writer and log file."""
