"""Handlers of the controller's events: one file for each subject; `registry` combines them."""
