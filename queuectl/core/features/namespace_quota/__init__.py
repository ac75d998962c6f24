"""What the objects in a namespace allow the pods of a workload, and what these are charged."""
