"""Resumable downloads, checked by a published checksum."""

import hashlib
import http.client
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from fairseq_plugins.common.errors import OptionError, WorkError
from fairseq_plugins.common.locks import exclusive_lock
from fairseq_plugins.data.folders import report

CHUNK_BYTES = 1 << 20
TIMEOUT_SECONDS = 60


def download(
    url: str,
    target: Path,
    expected: str | None,
    algorithm: str = "md5",
    instead: str = "--from DIR or --url URL",
) -> Path:
    """Download a file unless it exists, resuming `<target>.part`; return the checked target.

    Of several processes one downloads, and the others wait for it.
    An interrupted download keeps its part for the next call; a wrong checksum removes it.

    Args:
        url: address of the file.
        target: path to write.
        expected: its checksum; None if none is published.
        algorithm: name of the hash function.
        instead: options that take the file from another place, named in error messages.
    """
    if not url.startswith(("https://", "http://")):
        raise OptionError(f"--url must begin with https:// or http://, but is {url}")
    part = target.with_name(target.name + ".part")
    with ExitStack() as stack:
        if not target.exists():
            lock = target.with_name(f".{target.name}.lock")
            stack.enter_context(exclusive_lock(lock, str(target), wait=report))
        if not target.exists():  # nor made by another process meanwhile
            try:
                _fetch(url, part, is_checked=expected is not None)
            except (OSError, http.client.HTTPException) as error:
                raise WorkError(
                    f"{url} could not be downloaded ({error}); the same command resumes, or "
                    f"give {instead}"
                ) from error
        candidate = target if target.exists() else part
        with candidate.open("rb") as stream:
            digest = hashlib.file_digest(stream, algorithm).hexdigest()
        if expected not in (None, digest):
            candidate.unlink()
            raise WorkError(
                f"{target.name} from {url}: expected {algorithm} {expected}, found {digest}; "
                "removed"
            )
        return candidate.replace(target)


def _fetch(url: str, part: Path, *, is_checked: bool) -> None:
    """Append the missing part of a URL's content to a file.

    is_checked: whether the caller checks the file, so that one without a missing part is kept.
    """
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            if not is_checked:
                part.unlink()
                _fetch(url, part, is_checked=False)
            return
        raise
    with response:
        resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
        have = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        shown = -1
        with part.open("ab" if resumed else "wb") as out:
            while chunk := response.read(CHUNK_BYTES):
                out.write(chunk)
                have += len(chunk)
                percent = 100 * have // total if total else 0
                if total and percent // 5 != shown:
                    shown = percent // 5
                    report(f"downloading {part.stem}: {percent}% of {total / 1e6:.0f} MB")
    if total is not None and have != total:
        raise ConnectionError(f"connection ended at {have} of {total} bytes")
