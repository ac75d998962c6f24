"""The client: sessions, reflectors and writes. Only importer of the Kubernetes library."""
