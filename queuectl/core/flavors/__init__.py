"""Flavor assignment: which ResourceFlavor each resource of a podset is charged to, or the reason why none."""
