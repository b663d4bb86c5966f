"""Downloads go on where they stopped, are checked, and say what else works."""

import functools
import hashlib
import http.server
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fairseq_plugins.common.errors import OptionError, WorkError
from fairseq_plugins.data import prepare
from fairseq_plugins.data.download import download
from tests.data.tiny import left_in


class RangeHandler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and parts of its files; `cut` ends every answer after so many bytes."""

    cut: int | None = None
    requests: list[str | None]

    def do_GET(self) -> None:
        data = Path(self.translate_path(self.path)).read_bytes()
        wanted = self.headers.get("Range")
        self.requests.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        if wanted and start >= len(data):
            self.send_error(416)
            return
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        self.wfile.write(data[start:][: self.cut])

    def log_message(self, *args: object) -> None:
        """No log among the tests' output."""


@pytest.fixture
def served(archive: Path) -> Iterator[tuple[str, type[RangeHandler]]]:
    """The address of the zip on a local server, and its handler's settings."""
    handler = type("Handler", (RangeHandler,), {"requests": []})
    bound = functools.partial(handler, directory=str(archive.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), bound) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/{archive.name}", handler
        server.shutdown()
        thread.join()


def test_download_reports_and_is_not_repeated(served, archive, corpus, tmp_path, capsys):
    url, handler = served
    for _ in range(2):
        got = download(url, tmp_path / "got" / "tiny.zip", corpus.zip_md5)
        assert got.read_bytes() == archive.read_bytes()
    assert handler.requests == [None]
    assert "100%" in capsys.readouterr().out.splitlines()[-1]
    assert left_in(tmp_path / "got") == ["tiny.zip"]


def test_two_downloads_at_once_are_one(served, archive, tmp_path, monkeypatch, capsys):
    url, handler = served
    serve = handler.do_GET

    def wait_and_serve(self: RangeHandler) -> None:
        time.sleep(0.5)
        serve(self)

    monkeypatch.setattr(handler, "do_GET", wait_and_serve)
    target = tmp_path / "tiny.zip"
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: download(url, target, None), range(2)))
    assert found == [target, target] and target.read_bytes() == archive.read_bytes()
    assert handler.requests == [None]
    assert "waiting for it" in capsys.readouterr().out


def test_a_broken_download_resumes(served, archive, corpus, tmp_path):
    url, handler = served
    target = tmp_path / "tiny.zip"
    handler.cut = 100
    with pytest.raises(WorkError, match=r"could not be downloaded .*100 of .* resumes"):
        download(url, target, corpus.zip_md5)
    assert (tmp_path / "tiny.zip.part").stat().st_size == 100
    assert not target.exists()
    handler.cut = None
    download(url, target, corpus.zip_md5)
    assert handler.requests == [None, "bytes=100-"]
    assert target.read_bytes() == archive.read_bytes()


def test_a_complete_part_needs_no_more(served, archive, corpus, tmp_path):
    (tmp_path / "tiny.zip.part").write_bytes(archive.read_bytes())
    download(served[0], tmp_path / "tiny.zip", corpus.zip_md5)
    assert (tmp_path / "tiny.zip").read_bytes() == archive.read_bytes()


def test_without_a_sum_a_part_of_another_file_is_not_taken_for_it(served, archive, tmp_path):
    (tmp_path / "tiny.zip.part").write_bytes(archive.read_bytes() + b"more")
    download(served[0], tmp_path / "tiny.zip", None)
    assert (tmp_path / "tiny.zip").read_bytes() == archive.read_bytes()


def test_a_wrong_sum_names_both_and_leaves_nothing(served, archive, tmp_path):
    right = hashlib.md5(archive.read_bytes()).hexdigest()
    wrong = "0" * 32
    with pytest.raises(WorkError) as raised:
        download(served[0], tmp_path / "got" / "tiny.zip", wrong)
    assert f"tiny.zip from {served[0]}: expected md5 {wrong}, found {right}" in str(raised.value)
    assert left_in(tmp_path / "got") == []


def test_an_unreachable_address_says_what_else_works(corpus, tmp_path):
    with pytest.raises(WorkError, match="--from DIR or --url URL"):
        download("http://127.0.0.1:9/tiny.zip", tmp_path / "tiny.zip", corpus.zip_md5)


def test_only_http_addresses(corpus, tmp_path):
    with pytest.raises(OptionError, match="--url must begin with https:// or http://"):
        download("file:///etc/passwd", tmp_path / "tiny.zip", corpus.zip_md5)


def test_prepared_from_a_download(served, corpus, tmp_path, binarised):
    output = tmp_path / "data" / "tiny"
    prepare.prepare_published(corpus, output, url=served[0])
    assert left_in(output.parent) == ["downloads", "tiny"]
    assert json.loads((output / "data.json").read_text())["origin"] == {"url": served[0]}
