"""Position encodings in plain PyTorch.

Every module of this package registers what it defines, so a new encoding is one new file.
"""

import importlib
import pkgutil

from fairseq_plugins.encodings.base import (
    ALL_HOOKS,
    EncodingContext,
    IncompatibleEncodingError,
    PositionEncoding,
)
from fairseq_plugins.encodings.compose import Compose
from fairseq_plugins.encodings.layers import ModelEncodings, build_model_encodings
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
    Option,
    build_encoding,
    expand_name,
    get_entry,
    parse_options,
    register_composition,
    register_encoding,
    with_absolute_embedding,
)

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

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
