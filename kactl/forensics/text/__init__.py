"""Parser from log lines to columns: layouts, formats, splits. Independent of Spark."""
