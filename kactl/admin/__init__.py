"""The admin API: what the controller knows and can be asked for, over HTTP. Needs the extra `server`."""
