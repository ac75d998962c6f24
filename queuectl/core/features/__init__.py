"""Subjects beside quota, a package each. The kernel knows their protocol, and none of them."""
