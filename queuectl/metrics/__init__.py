"""Figures of the controller in Prometheus' text format. The only importer of prometheus_client."""
