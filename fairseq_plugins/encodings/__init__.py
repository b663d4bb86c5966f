"""Position encodings in plain PyTorch.

Every module of this package registers the encodings that it defines, so a new encoding is one new
file. The environment variable FAIRSEQ_PLUGINS_ENCODINGS names files elsewhere, which are imported
as if they were here.
"""

import importlib
import importlib.util
import pkgutil
import sys
from pathlib import Path

from fairseq_plugins.common.own_encodings import own_encodings
from fairseq_plugins.encodings.base import (
    ALL_HOOKS,
    EncodingContext,
    IncompatibleEncodingError,
    PositionEncoding,
)
from fairseq_plugins.encodings.compose import Compose
from fairseq_plugins.encodings.layers import ModelEncodings, build_model_encodings
from fairseq_plugins.encodings.options import Option, parse_options
from fairseq_plugins.encodings.properties import LinearFacts, PositionFacts
from fairseq_plugins.encodings.protocols import (
    FoldsBasis,
    RelativeOnAverage,
    Repositions,
    SeesMask,
    Stochastic,
)
from fairseq_plugins.encodings.registry import (
    ENCODINGS,
    EncodingEntry,
    build_encoding,
    expand_name,
    get_entry,
    register_composition,
    register_encoding,
    with_absolute_embedding,
)


def _import_file(name: str, path: Path) -> None:
    """Import a file as the module ``name`` (ValueError: the package has a module of that name)."""
    if name in sys.modules:
        raise ValueError(f"{path} must have another name: there is a module {name}")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]  # so that the file can be mended and imported again
        raise


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
for _name, _path in own_encodings().items():
    _import_file(f"{__name__}.{_name}", _path)

__all__ = [
    "ALL_HOOKS",
    "ENCODINGS",
    "Compose",
    "EncodingContext",
    "EncodingEntry",
    "FoldsBasis",
    "IncompatibleEncodingError",
    "LinearFacts",
    "ModelEncodings",
    "Option",
    "PositionEncoding",
    "PositionFacts",
    "RelativeOnAverage",
    "Repositions",
    "SeesMask",
    "Stochastic",
    "build_encoding",
    "build_model_encodings",
    "expand_name",
    "get_entry",
    "parse_options",
    "register_composition",
    "register_encoding",
    "with_absolute_embedding",
]
