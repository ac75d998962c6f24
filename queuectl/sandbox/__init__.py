"""Embedded defaults: what `queuectl sandbox` starts instead of a cluster and a database."""
