"""Configuration: settings, the configuration file, protocol levels, topic settings."""
