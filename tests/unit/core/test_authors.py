"""The user that wrote a spec is part of the decision that puts it in force."""

from __future__ import annotations

from dataclasses import replace

from queuectl.core.decisions import Configure
from queuectl.core.model.events import PolicyGone
from tests.builders import World, local_queue, policy, queue


def authors(world: World) -> list[tuple[str, str | None]]:
    known = len(world.decided)
    world.run()
    return [(d.key.name, d.author) for d in world.decided[known:] if isinstance(d, Configure)]


def test_each_spec_comes_into_force_with_the_user_that_wrote_it() -> None:
    world = World(local_queue("lq", "cq"))
    world.run()
    first, second = policy(queue("cq", 1)), policy(queue("cq", 2))
    world.tell(replace(first, author="ada"))
    assert authors(world) == [("cq", "ada")]
    world.tell(replace(first, author="grace"))
    assert authors(world) == []
    world.tell(replace(second, author="grace"))
    assert authors(world) == [("cq", "grace")]
    world.tell(first)
    assert authors(world) == [("cq", None)]
    world.tell(replace(first, author="ada"), PolicyGone(first.key))
    assert authors(world) == [("cq", None)]
