"""The asyncio driver of the engine: events in, ledger, then Kubernetes."""
