"""Messages: controller events, admin requests, broker requests, control requests, records of the event log."""
