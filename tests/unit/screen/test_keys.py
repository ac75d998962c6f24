"""From bytes of a terminal to keys, and from keys to views."""

from __future__ import annotations

from functools import reduce

import pytest

from queuectl.screen.navigation import MAX_FILTER, Pane, ScreenView, press
from queuectl.screen.terminal import Decoder

ROWS = {Pane.QUEUES: 3, Pane.RUNNING: 0, Pane.WAITING: 25, Pane.DECISIONS: 100}


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", ["q"]),
        (b"jk/", ["j", "k", "/"]),
        (b"\x1b[A\x1b[B\x1bOA", ["up", "down", "up"]),
        (b"\x1b[5~\x1b[6~\x1b[H\x1b[F\x1b[1~\x1b[4~", ["pageup", "pagedown", "home", "end", "home", "end"]),
        (b"\t\x1b[Z\r\n\x7f", ["tab", "backtab", "enter", "enter", "backspace"]),
        (b"\x1b[1;5C\x1b[200~x", ["x"]),
        (b"\x1bx", []),
        (b"\x1b\x1b[A", ["escape", "up"]),
        ("é".encode(), ["é"]),
        (b"\xff", ["\ufffd"]),
    ],
)
def test_keys_have_names_whole_or_byte_by_byte(data: bytes, keys: list[str]) -> None:
    assert Decoder().feed(data) == keys
    slow = Decoder()
    found = [key for byte in data for key in slow.feed(bytes([byte]))]
    assert found == keys


def test_an_escape_alone_is_a_key_once_nothing_follows() -> None:
    decoder = Decoder()
    assert decoder.feed(b"\x1b") == []
    assert decoder.waiting
    assert decoder.flush() == ["escape"]
    assert decoder.feed(b"\x1b[") == []
    assert decoder.flush() == []
    assert decoder.feed(b"q") == ["q"]


def test_an_endless_sequence_is_thrown_away() -> None:
    decoder = Decoder()
    assert decoder.feed(b"\x1b[" + b"1;" * 10_000) == []
    assert decoder.feed(b"q") == ["q"]


def pressed(*keys: str, view: ScreenView | None = None) -> ScreenView:
    return reduce(
        lambda found, key: press(found, key, ROWS, ("team-a", "Job", "x")), keys, view or ScreenView()
    )


@pytest.mark.parametrize(
    ("keys", "row"),
    [
        (("down", "j", "down"), 3),
        (("up", "k"), 0),
        (("pagedown", "pagedown", "pagedown"), 24),
        (("G", "up"), 23),
        (("end", "home", "down"), 1),
        (("pagedown", "pageup"), 0),
        (("x", "\ufffd"), 0),
    ],
)
def test_the_chosen_row_stays_within_its_table(keys: tuple[str, ...], row: int) -> None:
    assert pressed(*keys).row(Pane.WAITING) == row


def test_tab_goes_round_the_tables_and_each_remembers_its_row() -> None:
    view = pressed("down", "tab", "down", "tab", "down", "down", "backtab", "backtab")
    assert view.pane is Pane.WAITING
    assert view.row(Pane.WAITING) == 1
    assert view.row(Pane.DECISIONS) == 1
    assert view.row(Pane.QUEUES) == 2
    assert pressed("tab", "tab", "tab", "down").row(Pane.RUNNING) == 0


def test_a_filter_is_typed_kept_and_taken_away() -> None:
    assert pressed("/", "q", "p", "-", "backspace").filter == "qp"
    assert not pressed("f", "a", "enter").typing
    assert pressed("f", "a", "enter").filter == "a"
    assert pressed("/", "a", "escape") == pressed("/", "a", "enter", "escape") == ScreenView()
    assert len(pressed("/", *"x" * 1000).filter) == MAX_FILTER
    assert pressed("/", "up", "\x07").filter == ""


def test_pages_of_their_own_close_with_any_key_and_q_leaves_the_tables() -> None:
    assert pressed("?").help
    assert pressed("?", "q") == ScreenView()
    assert pressed("enter").opened == ("team-a", "Job", "x")
    assert pressed("enter", "j") == ScreenView()
    assert pressed("q").leaving
    assert pressed("p").paused
    assert not pressed("p", " ").paused
    assert pressed("r").all_resources
