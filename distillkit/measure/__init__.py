"""Metrics, baselines, size and latency; the tables, statistics and model card made of them."""
