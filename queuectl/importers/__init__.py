"""Policy and work of other queue systems, converted to objects of queuectl. Pure."""
