"""A ledger that was restored from a backup is not mistaken for the one before."""

from __future__ import annotations

from queuectl.ledger.admin.verify import Verifier
from queuectl.ledger.read.outbox import PostgresOutbox
from queuectl.ledger.read.queries import LedgerReadings
from queuectl.notifications.messages import about, gap
from queuectl.notifications.rules import Event
from tests.integration.ledger.edits import World
from tests.integration.ledger.plans import configure, enqueue, evict, release, retire
from tests.integration.ledger.restoring import Backup


async def messages(world: World) -> list[str]:
    """The ids of the messages about all starts and evictions."""
    found = await PostgresOutbox(world.pool, world.cluster).occurrences(0, 100)
    return [about(world.cluster, Event.STARTED, one, frozenset()).id for one in found.found]


async def test_messages_about_decisions_of_a_restored_ledger_have_ids_of_their_own(world: World) -> None:
    await world.write(configure("team-a", 100), enqueue("a"), enqueue("b", arrival=2))
    await world.write(await world.admit("a"))
    backup = Backup(world)
    await backup.take()
    await world.write(await world.admit("b"), evict("a", 1))
    lost = await messages(world)
    await backup.restore()
    await world.write(evict("a", 1), await world.admit("b"))
    after = await messages(world)
    assert [id.rpartition("/")[2] for id in lost] == [id.rpartition("/")[2] for id in after]
    assert lost[0] == after[0]
    assert not set(lost[1:]) & set(after[1:])


async def test_a_gap_of_a_restored_ledger_has_an_id_of_its_own(world: World) -> None:
    await world.write(configure("team-a", 100), enqueue("a"))
    outbox, backup = PostgresOutbox(world.pool, world.cluster), Backup(world)
    await backup.take()
    ids = set()
    for _ in range(2):
        await backup.restore()
        await world.write(await world.admit("a"), evict("a", 1))
        await world.tamper("DELETE FROM queuectl.decision WHERE cluster_id = :c AND sequence < 4")
        found = await outbox.occurrences(1, 100)
        assert found.deleted is not None
        ids.add(gap(world.cluster, found.deleted, found.read_at).id)
    assert len(ids) == 2


async def test_the_last_decision_of_an_epoch_is_the_last_that_a_restore_left(world: World) -> None:
    readings = LedgerReadings(world.pool, world.cluster)
    assert await readings.last_of(world.epoch) == 0
    await world.write(configure("team-a", 100), enqueue("a"))
    backup, first = Backup(world), world.epoch
    await backup.take()
    await world.write(await world.admit("a"), evict("a", 1))
    assert await readings.last_of(first) == 4
    await backup.restore()
    await world.write(*(enqueue(name, arrival=2) for name in "bcdefg"))
    assert await readings.last_of(first) == 2
    assert await readings.last_of(world.epoch) == 8
    assert await readings.last_of(first - 1) == 0


async def test_a_comparison_that_goes_on_begins_anew_on_a_restored_ledger(world: World) -> None:
    """Its own state is of decisions that were lost."""
    await world.write(configure("team-a", 100), enqueue("a"), enqueue("b", arrival=2))
    backup, verifier = Backup(world), Verifier(world.pool, world.cluster)
    await backup.take()
    await world.write(await world.admit("a"), evict("a", 1))
    assert await verifier.run() == []
    await backup.restore()
    for _ in range(2):
        assert await verifier.run() == []
        await world.write(await world.admit("b"))
        await world.write(evict("b", 1), release("b", 1), retire("b", None), enqueue("b", arrival=3))
        assert await verifier.run() == []
        await backup.restore()
