"""What the controller does for each kind of event: one file for each subject, brought together by `all_handlers`."""
