"""Job `losses`: records that replicas removed to follow a leader with a shorter log."""
