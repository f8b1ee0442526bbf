"""The admin API over HTTP: queries, commands, events, health checks and metrics. Needs the extra `server`."""
