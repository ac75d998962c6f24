"""A terminal screen over REST: queues and their usage, pending workloads with reasons, recent decisions."""
