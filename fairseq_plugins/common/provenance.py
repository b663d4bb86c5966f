"""Provenance of results: data, commit, versions and hardware, without machine names."""

import functools
import hashlib
import os
import platform
import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.common.cpu import cores
from fairseq_plugins.common.dictionaries import count_symbols
from fairseq_plugins.common.extras import DISTRIBUTION
from fairseq_plugins.common.files import require_object
from fairseq_plugins.common.own_encodings import VARIABLE, own_encodings
from fairseq_plugins.common.root import PACKAGE, configs_folder

SPLITS = ("train", "valid", "test")
# The files of a binarised folder of one language.
DATA_FILES = ("dict.txt", *(f"{s}.{suffix}" for s in SPLITS for suffix in ("bin", "idx")))
# Fields of data.json that identify the data; the others describe its origin.
DATA_IDENTITY = ("request", "splits", "dictionary_size")
# Measurements of the data, which older descriptions may lack.
DATA_MEASURED = ("floors", "seen_first_sentences")

_PACKAGES = ("torch", "fairseq", "hydra-core", "numpy")


def missing_data(folder: Path, names: Sequence[str] = DATA_FILES) -> list[str]:
    """List the missing files of a data folder."""
    return [name for name in names if not (folder / name).is_file()]


def describe_data(folder: Path) -> dict[str, Any]:
    """Read the folder's data.json, if any, and the sizes of its dictionaries.

    Raises DataError: data.json is damaged.
    """
    path = folder / "data.json"
    about = require_object(path) if path.is_file() else {}
    sizes = {one.name: count_symbols(one) for one in sorted(folder.glob("dict*.txt"))}
    size = sizes.get("dict.txt", sizes) or about.get("dictionary_size")
    return {**without_absolute_paths(about), "dictionary_size": size}


def describe_all(folders: Mapping[str, Path]) -> dict[str, Any]:
    """Describe one folder, or several with the recorded fields by name."""
    about = {name: describe_data(folder) for name, folder in folders.items()}
    if len(about) == 1:
        return about.popitem()[1]
    measured = [key for key in DATA_MEASURED if any(one.get(key) for one in about.values())]
    return {
        key: {name: one.get(key) for name, one in about.items()}
        for key in (*DATA_IDENTITY, *measured)
    }


def different_folders(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """List the folders in two descriptions whose data differ, a single folder as "".

    A folder that one of them lacks is no difference, unless they have none in common.
    """
    first, second = _by_folder(one), _by_folder(other)
    shared = first.keys() & second.keys()
    if not shared:
        return sorted(first.keys() | second.keys())
    return sorted(name for name in shared if first[name] != second[name])


def _by_folder(described: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Split a description into those of its folders by name; one folder has the name ""."""
    fields = {key: described.get(key) or {} for key in DATA_IDENTITY}
    names = fields["splits"].keys()
    if not names or names != fields["request"].keys():
        return {"": fields}
    return {name: {key: one.get(name) for key, one in fields.items()} for name in names}


def without_absolute_paths(value: Any) -> Any:
    """Replace absolute paths in plain data by their last part."""
    if isinstance(value, dict):
        return {key: without_absolute_paths(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_absolute_paths(inner) for inner in value]
    if isinstance(value, str) and os.path.isabs(value):
        return os.path.basename(value)
    return value


def command_line(command: Sequence[str]) -> str:
    """Return a command in one line, its absolute paths shortened, after ``option=`` too.

    Before it stands the variable that names files of encodings outside the package, if any.
    """
    own = os.pathsep.join(path.name for path in own_encodings().values())
    words = [f"{VARIABLE}={own}"] if own else []
    for word in command:
        found = re.fullmatch(r"([^/]*=)?'?(/.*?)'?", word)  # Hydra quotes paths with an equals sign
        words.append(f"{found[1] or ''}{without_absolute_paths(found[2])}" if found else word)
    return shlex.join(words)


def release() -> str:
    """Return the version of the installed package, or "unknown"."""
    import importlib.metadata  # slow to import; --help stays fast

    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def commit(root: Path) -> str:
    """Return HEAD, with "-dirty" if `uncommitted` lists a file; "release 0.1.0" if installed."""
    if configs_folder(root).is_relative_to(PACKAGE):
        return f"release {release()}"
    head = _git(root, "rev-parse", "--verify", "HEAD")
    if head is None:
        return "unknown"
    return f"{head}-dirty" if uncommitted(root) else head


def uncommitted(root: Path) -> list[str]:
    """List changed and new files, except results and ignored ones, and own encodings elsewhere."""
    results = [f":(exclude){folder}" for folder in ("results", "benchmarks/results")]
    changed = _git(root, "status", "--porcelain", "--", ".", *results) or ""
    own = [str(path) for path in own_encodings().values() if not path.is_relative_to(root)]
    return [line.split(maxsplit=1)[1] for line in changed.splitlines()] + own


def committed(root: Path, folder: Path) -> set[Path]:
    """Return the files of a folder that equal their committed version."""
    tracked = _git(root, "ls-files", "-z", "--", str(folder)) or ""
    changed = _git(root, "diff", "--relative", "--name-only", "-z", "HEAD", "--", str(folder)) or ""
    return {Path(name) for name in set(tracked.split("\0")) - set(changed.split("\0")) if name}


def digest(root: Path, paths: Iterable[Path]) -> str:
    """Compute 16 hexadecimal digits from names and contents of files below ``root``."""
    return _digest({path.relative_to(root).as_posix(): path for path in paths})


def _digest(files: Mapping[str, Path]) -> str:
    checksum = hashlib.sha256()
    for name in sorted(files, key=lambda name: name.split("/")):  # in the order of paths
        content = files[name].read_bytes()
        checksum.update(name.encode() + b"\0")
        checksum.update(len(content).to_bytes(8) + content)
    return checksum.hexdigest()[:16]


def sources(root: Path) -> str:
    """Compute a digest of code, own encodings and configurations, equal for wheel and checkout."""
    configs = configs_folder(root)
    is_shipped = configs.is_relative_to(PACKAGE)
    package = PACKAGE if is_shipped else root / "fairseq_plugins"
    code = {
        f"fairseq_plugins/{p.relative_to(package).as_posix()}": p for p in package.rglob("*.py")
    }
    own = {f"fairseq_plugins/encodings/{name}.py": path for name, path in own_encodings().items()}
    recipes = {f"configs/{p.relative_to(configs).as_posix()}": p for p in configs.rglob("*.yaml")}
    return _digest(code | own | recipes)


def _git(root: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *words], cwd=root, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def versions() -> dict[str, str]:
    """Return versions of Python and libraries; fairseq may be any distribution of that module."""
    return {"python": platform.python_version(), **_library_versions()}


@functools.cache  # reads the lists of files of all installed distributions, for half a second
def _library_versions() -> Mapping[str, str]:
    import importlib.metadata  # slow to import; --help stays fast

    by_package = {}
    installed = importlib.metadata.packages_distributions()
    for package in _PACKAGES:
        module = package.replace("-core", "")
        distribution = installed.get(module, [package])[0]
        try:
            by_package[package] = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            by_package[package] = "unknown"
    return by_package


def hardware(gpus: int, threads: int | None = None) -> dict[str, Any]:
    """Return CPU model, usable cores, PyTorch's threads, GPUs in use and memory in GiB.

    threads: threads of other processes that did the computation; None for this process's.
    """
    import torch

    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _cpu_model(),
        "cores": cores(),
        "threads": threads or torch.get_num_threads(),
        "gpus": names[:gpus],
        "memory_gib": round(memory / 2**30, 1),
    }


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
