"""fairseq-preprocess in this process, since a new one takes seconds to import fairseq."""

import contextlib
import io
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from fairseq_cli import preprocess

from fairseq_plugins.data import binarise


@contextlib.contextmanager
def preprocess_here() -> Iterator[None]:
    """Let the preparation of data run fairseq-preprocess here; tests/data has one that does not."""

    def run(command: Sequence[str], *, cwd: Path, **_: object) -> None:
        assert list(command[1:3]) == ["-m", "fairseq_cli.preprocess"]
        with (
            contextlib.chdir(cwd),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            pytest.MonkeyPatch.context() as line,
        ):
            line.setattr(sys, "argv", ["fairseq-preprocess", *command[3:]])
            # It logs to a file in the folder that it makes, which is moved.
            line.setattr(preprocess.logger, "handlers", [])
            preprocess.cli_main()
            for handler in preprocess.logger.handlers:
                handler.close()

    with pytest.MonkeyPatch.context() as patch:
        pipes = {"PIPE": subprocess.PIPE, "STDOUT": subprocess.STDOUT}
        patch.setattr(binarise, "subprocess", SimpleNamespace(run=run, **pipes))
        yield
