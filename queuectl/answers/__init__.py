"""Answers to readers, computed from one committed state or from history. Pure."""
