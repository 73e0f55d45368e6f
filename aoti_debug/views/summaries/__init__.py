"""Summaries over time: headroom of low precisions, drift, tables and a page with curves."""
