"""Evictions whose pods do not end in time."""
