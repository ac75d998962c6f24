"""Sockets and event loops of server processes."""
