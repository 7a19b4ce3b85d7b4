"""The build backend: scikit-build-core, and a source distribution that has the tree around this folder too."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from scikit_build_core import build as inner
from scikit_build_core.build import *  # noqa: F403

HERE = Path(__file__).resolve().parent
TREE = HERE.parent.parent
PARTS = ("CMakeLists.txt", "LICENSE", "augment", "bindings", "cmake", "formats", "kernels", "loader", "net", "pack", "tools", "train")


def _files():
    """What git tracks of these; in a copy without git, all but build outputs."""
    found = subprocess.run(["git", "-C", TREE, "ls-files", "-z", *PARTS], capture_output=True) if shutil.which("git") else None
    if found is not None and found.returncode == 0 and found.stdout:
        return [TREE / os.fsdecode(name) for name in found.stdout.split(b"\0") if name]
    return [path for part in PARTS for path in [TREE / part, *(TREE / part).rglob("*")] if "__pycache__" not in path.parts]


def build_sdist(sdist_directory, config_settings=None):
    """The tree with pyproject.toml at its top, whose paths are changed."""
    out = os.path.abspath(sdist_directory)
    with tempfile.TemporaryDirectory() as folder:
        for path in filter(Path.is_file, _files()):
            copy = Path(folder) / path.relative_to(TREE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)
        project = (HERE / "pyproject.toml").read_text()
        for old, new in (('backend-path = ["."]\n', ""), ('build-backend = "backend"', 'build-backend = "scikit_build_core.build"'),
                         ('cmake.source-dir = "../.."', 'cmake.source-dir = "."'),
                         ('"src/ccstream"', '"bindings/python/src/ccstream"'),
                         ('"README.md"', '"bindings/python/README.md"')):
            if old not in project:
                raise RuntimeError(f"pyproject.toml lacks {old!r}")
            project = project.replace(old, new)
        (Path(folder) / "pyproject.toml").write_text(project)
        old_folder = os.getcwd()
        os.chdir(folder)
        try:
            return inner.build_sdist(out, config_settings)
        finally:
            os.chdir(old_folder)
