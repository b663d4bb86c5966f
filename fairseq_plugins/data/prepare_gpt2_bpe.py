"""Preparation of GPT-2's published tokenizer."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from fairseq_plugins.common.errors import DataError
from fairseq_plugins.common.files import read_bytes
from fairseq_plugins.data.download import download
from fairseq_plugins.data.folders import replace_folder, report, staging_folder
from fairseq_plugins.data.gpt2_bpe import FILES, PUBLISHED_SHA256, PUBLISHED_URL, load_encoder
from fairseq_plugins.data.measure import sha256
from fairseq_plugins.data.options import find_sources


def prepare_tokenizer(
    output: Path,
    source: Path | None,
    url: str = PUBLISHED_URL,
    sums: Mapping[str, str] = PUBLISHED_SHA256,
) -> None:
    """Put GPT-2's tokenizer in `output`, from a folder (plain or compressed) or by download.

    Raises DataError: a file is missing, damaged or not the published one; nothing is then written.
    """
    given = {} if source is None else find_sources(source, {name: [name] for name in FILES})
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        files = {name: output / name for name in FILES}
        wrong = [n for n, path in files.items() if not path.is_file() or sha256(path) != sums[n]]
        if wrong:
            raise DataError(
                f"--output {output} exists and its {wrong[0]} is not the published one; "
                "move it away"
            )
        report(f"{output} is already there; delete it to prepare it again")
        return
    with staging_folder(output) as work:
        built = work / "tokenizer"
        built.mkdir()
        for name in FILES:
            if source is None:
                path = output.parent / "downloads" / "gpt2_bpe" / name
                content = download(f"{url}/{name}", path, sums[name], "sha256").read_bytes()
            else:
                content = read_bytes(given[name])
            digest = hashlib.sha256(content).hexdigest()
            if digest != sums[name]:
                raise DataError(
                    f"{name} in {source} is not the published file: sha256: "
                    f"expected {sums[name]}, found {digest}"
                )
            (built / name).write_bytes(content)
        load_encoder(built)
        replace_folder(built, output)
    report(f"{output}: {', '.join(FILES)}")
