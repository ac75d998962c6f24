"""The whole system in one process on virtual time: `python -m tests.world`.

Two replicas of the real controller (its loop, effects, reflectors, lease, statuses, admission of events), a
REST view and the notifier run over the small Kubernetes API and the ledger's twin in memory, with the
sandbox's players as scheduler, kubelet and Job controller, and doubles of the operators of kinds. A seed
makes a schedule of what tenants and admins do and of faults; after it the faults end, and oracles look at
what was written and at where it comes to rest. The same seed gives the same bytes of history.

The event loop is our own (`loop.py`, some 200 lines). Libraries with virtual time (async-solipsism, looptime)
run one program: they can't stop, kill or delay one of several processes that share a loop, and this is most
of what happens here. Libraries that choose the order of callbacks at random (detangle) choose also within one
process, where asyncio promises the order of registration. Here each process, and each of its threads, has a
queue of callbacks of its own in their order; the seed chooses between the queues.
"""
