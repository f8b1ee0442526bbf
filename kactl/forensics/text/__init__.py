"""From lines to columns: layouts, formats, splits. Knows nothing of Spark."""
