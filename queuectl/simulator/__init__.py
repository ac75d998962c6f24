"""Decisions without a cluster: documents that say what is there, and an engine that decides on them."""
