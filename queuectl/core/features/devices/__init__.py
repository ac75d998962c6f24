"""Devices of dynamic resource allocation: what claims ask for, and what pods hold by them."""
