"""Metrics of all processes in Prometheus' text format. The only importer of prometheus_client."""
