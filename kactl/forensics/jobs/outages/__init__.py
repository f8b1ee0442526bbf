"""Job `outages`: when partitions had no usable leader, why, and how the time was spent."""
