"""What the engine would decide after a change: tried on a copy. Pure."""
