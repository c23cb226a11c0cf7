"""Proof: metrics, baselines, size, latency, and the table that puts them side by side."""
