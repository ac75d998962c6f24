"""Embedded defaults: what `queuectl sandbox` brings where no cluster and no database are."""
