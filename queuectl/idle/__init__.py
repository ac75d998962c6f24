"""Reads from Prometheus what GPUs do, and records which admitted workloads leave theirs idle.

Nothing is decided by it. Metrics are those of NVIDIA's dcgm-exporter.
"""
