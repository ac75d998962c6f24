"""README's installation, typed on a new cluster with the small API."""

from __future__ import annotations

import shutil

import pytest

from queuectl.sandbox.control_plane import find_assets
from tests.acceptance.first_hour.play import play
from tests.acceptance.first_hour.scenes import README, SCENES
from tests.integration.ledger.places import reachable_folder


async def test_each_command_of_the_installation_works() -> None:
    if find_assets() is None and shutil.which("kubectl") is None:
        pytest.skip("no kubectl: neither KUBEBUILDER_ASSETS is set nor is one on the PATH")
    scenes = [scene for scene in SCENES if (scene.document, scene.name) == (README, "install")]
    with reachable_folder() as folder:
        typed = await play(folder, "small", print, scenes, pipx=False)
    assert len(typed) > 10
    assert not [str(one) for one in typed if one.problem]
