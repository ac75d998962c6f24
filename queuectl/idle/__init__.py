"""Reads from Prometheus what the GPUs of admitted workloads do: events of the controller's engine.

Metrics are those of NVIDIA's dcgm-exporter.
"""
