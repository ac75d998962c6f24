"""The files of a release, and that the installed wheel does the main job."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

import pytest
import yaml

from queuectl import __version__
from release import artifacts, check

REPOSITORY = Path(__file__).resolve().parents[3]
DEADLINE = 120


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    artifacts.build(folder)
    return folder


def _names(packed: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        return {member.name: member for member in tar}


def test_a_release_has_each_file_with_its_checksum(dist: Path) -> None:
    version = __version__
    named = {
        f"queuectl-{version}-py3-none-any.whl",
        f"queuectl-{version}.tar.gz",
        f"queuectl-image-{version}.tar.gz",
        f"queuectl-chart-{version}.tgz",
        f"kubectl-queue-{version}.tar.gz",
        "queue.yaml",
    }
    assert {path.name for path in dist.iterdir()} == {*named, "SHA256SUMS"}
    lines = [line.split() for line in (dist / "SHA256SUMS").read_text().splitlines()]
    sums = {name: digest for digest, name in lines}
    assert sums == {name: hashlib.sha256((dist / name).read_bytes()).hexdigest() for name in named}


def test_the_archives_are_the_same_each_time(dist: Path, tmp_path: Path) -> None:
    artifacts.build(tmp_path)
    archives = [path.name for path in dist.iterdir() if path.suffix in (".tgz", ".yaml")]
    archives += [f"queuectl-image-{__version__}.tar.gz", artifacts.plugin_name()]
    for name in archives:
        assert (tmp_path / name).read_bytes() == (dist / name).read_bytes(), name


def test_the_source_distribution_builds_the_same_wheel(dist: Path, tmp_path: Path) -> None:
    with tarfile.open(dist / f"queuectl-{__version__}.tar.gz") as tar:
        tar.extractall(tmp_path, filter="data")
    source = tmp_path / f"queuectl-{__version__}"
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "again")]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=DEADLINE)
    name = f"queuectl-{__version__}-py3-none-any.whl"
    assert (tmp_path / "again" / name).read_bytes() == (dist / name).read_bytes()


def test_the_image_context_has_what_the_dockerfile_copies_and_nothing_else(dist: Path) -> None:
    found = _names((dist / f"queuectl-image-{__version__}.tar.gz").read_bytes())
    tops = {name.partition("/")[0] for name in found}
    assert tops == {
        *("Dockerfile", "LICENSE", "README.md", "pyproject.toml", "queuectl", "migrations", "manifests"),
        *("requirements.lock", "requirements-runtime.lock", "requirements-sandbox.lock"),
    }
    assert not [name for name in found if "__pycache__" in name]
    tracked = subprocess.run(
        ["git", "ls-files", "queuectl", "migrations", "manifests"],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    ).stdout.split()
    assert set(tracked) <= set(found)


def test_the_chart_is_packed_as_helm_expects_it(dist: Path) -> None:
    found = _names((dist / f"queuectl-chart-{__version__}.tgz").read_bytes())
    assert {"queuectl/Chart.yaml", "queuectl/values.yaml", "queuectl/templates/gate.yaml"} <= set(found)
    assert {name.partition("/")[0] for name in found} == {"queuectl"}


def test_the_krew_manifest_names_the_archive_of_the_plugin(dist: Path) -> None:
    plugin = (dist / artifacts.plugin_name()).read_bytes()
    manifest = yaml.safe_load((dist / "queue.yaml").read_text())
    assert (manifest["apiVersion"], manifest["kind"]) == (
        "krew.googlecontainertools.github.com/v1alpha2",
        "Plugin",
    )
    assert (manifest["metadata"], manifest["spec"]["version"]) == ({"name": "queue"}, f"v{__version__}")
    assert len(manifest["spec"]["shortDescription"]) <= 50
    (platform,) = manifest["spec"]["platforms"]
    assert platform["sha256"] == hashlib.sha256(plugin).hexdigest()
    assert platform["uri"].endswith(f"/v{__version__}/{artifacts.plugin_name()}")
    found = _names(plugin)
    assert {file["from"] for file in platform["files"]} == set(found) == {"LICENSE", platform["bin"]}
    assert found[platform["bin"]].mode & 0o111


def _plugin(folder: Path, path: str) -> subprocess.CompletedProcess[str]:
    """Unpack the plugin into `folder` as krew does, and run it with this PATH."""
    with tarfile.open(fileobj=io.BytesIO(artifacts.archive(artifacts.plugin_files()))) as tar:
        tar.extractall(folder, filter="data")
    command = [str(folder / "kubectl-queue"), "--version"]
    return subprocess.run(command, env={"PATH": path}, capture_output=True, text=True, timeout=DEADLINE)


def test_the_plugin_runs_the_installed_queuectl(tmp_path: Path) -> None:
    # pipx puts links into the PATH.
    links = tmp_path / "links"
    links.mkdir()
    (links / "queuectl").symlink_to(Path(sysconfig.get_path("scripts"), "queuectl"))
    done = _plugin(tmp_path, f"{links}:/usr/bin:/bin")
    assert (done.returncode, done.stderr) == (0, "")
    assert __version__ in done.stdout


@pytest.mark.parametrize("runner", ["uvx", "pipx"])
def test_without_queuectl_the_plugin_runs_its_own_release(runner: str, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / runner).write_text('#!/bin/sh\necho "$@"\n')
    (tools / runner).chmod(0o755)
    done = _plugin(tmp_path, f"{tools}:/usr/bin:/bin")
    before = {"uvx": "--from", "pipx": "run --spec"}[runner]
    assert done.stdout == f"{before} queuectl=={__version__} kubectl-queue --version\n"


def test_without_any_of_them_the_plugin_says_what_it_needs(tmp_path: Path) -> None:
    done = _plugin(tmp_path, "/usr/bin:/bin")
    assert done.returncode == 2
    assert "pipx install queuectl" in done.stderr


def test_the_installed_wheel_runs_the_example_to_the_end_of_a_workload(dist: Path, tmp_path: Path) -> None:
    """As `make release` checks it, but with the dependencies of this environment: nothing is downloaded."""
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    packages = next(environment.glob("lib/python*/site-packages"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target"]
    wheel = str(dist / f"queuectl-{__version__}-py3-none-any.whl")
    subprocess.run([*pip, str(packages), wheel], check=True, capture_output=True, timeout=DEADLINE)
    # After the installed package: an editable queuectl of this environment comes later in the path.
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    python = str(environment / "bin" / "python")
    script = "import queuectl; print(queuectl.__file__)"
    where = subprocess.run(
        [python, "-c", script], cwd=tmp_path, check=True, capture_output=True, text=True, timeout=DEADLINE
    )
    assert where.stdout.startswith(str(environment))
    (environment / "bin" / "queuectl").write_text(f"#!/bin/sh\nexec '{python}' -m queuectl \"$@\"\n")
    (environment / "bin" / "queuectl").chmod(0o755)
    assert "/" in check.run_example(environment / "bin" / "queuectl", tmp_path, seconds=180)


def test_a_program_that_ends_early_is_reported_with_its_output(tmp_path: Path) -> None:
    program = tmp_path / "queuectl"
    program.write_text("#!/bin/sh\necho no space left\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(check.CheckFailed, match="no space left"):
        check.run_example(program, tmp_path, seconds=60)
