"""The stateless mutating webhook for clusters that have no mutating policies."""
