"""Certificates of the HTTP servers: checked before use, renewed, and replaced without a restart."""
