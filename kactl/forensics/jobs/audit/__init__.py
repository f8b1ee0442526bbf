"""Job `audit`: rules that no correct cluster breaks, and their violations."""
