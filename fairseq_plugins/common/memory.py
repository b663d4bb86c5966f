"""Free memory of this machine, or of the container that this process is in."""

from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_AVAILABLE = "MemAvailable:"
_GROUP = Path("/sys/fs/cgroup")  # of a container, which sees its own group there
_LIMIT, _USED = "memory.max", "memory.current"


def available() -> int | None:
    """Return the bytes that processes can take without swapping; None where it is not known."""
    found = [size for size in (_of_machine(), _of_group()) if size is not None]
    return min(found, default=None)


def _of_machine() -> int | None:
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:  # no Linux
        return None
    sizes = [line.split()[1] for line in lines if line.startswith(_AVAILABLE)]
    return 1024 * int(sizes[0]) if sizes else None


def _of_group() -> int | None:
    try:
        limit, used = ((_GROUP / name).read_text().strip() for name in (_LIMIT, _USED))
    except OSError:  # no group of its own
        return None
    return max(0, int(limit) - int(used)) if limit.isdigit() else None
