"""Subjects beside quota, a package each, behind one protocol (core/feature)."""
