"""Initialisation of a learned position table from a shorter or differently encoded one."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fairseq_plugins.common.errors import NoNumberError
from fairseq_plugins.encodings.absolute import Learned
from fairseq_plugins.encodings.hierarchical import Hierarchical, combined, decomposed
from fairseq_plugins.encodings.tables import continued_rows, interpolated_rows

SU_ALPHA = 0.4  # weight of the coarse index, as proposed by Su


def _hierarchical(table: Tensor, fresh: Tensor) -> Tensor:
    size, end = len(fresh), len(table) ** 2
    if size > end:
        raise NoNumberError(
            f"`grow_table=hierarchical` must make at most {end} positions, the square of the "
            f"checkpoint's {len(table)} rows, but {size} are requested instead."
        )
    positions = torch.arange(size, device=table.device)
    return combined(decomposed(table, SU_ALPHA), SU_ALPHA, positions)


GROWTH_METHODS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "copy": continued_rows,
    "interpolate": lambda table, fresh: interpolated_rows(table, len(fresh)),
    "hierarchical": _hierarchical,
}


def grow_table(module: nn.Module, table: Tensor, method: str) -> tuple[Tensor, str] | None:
    """Derive the rows of a position table from a checkpoint's table.

    Args:
        module: encoding with the position table (m, C).
        table: (n, C), table of a ``learned`` encoding in a checkpoint.
        method: one of ``GROWTH_METHODS``, if the module is ``learned``.

    Returns:
        The rows (m, C) and a description for the log; None if the module has no position table or
        the widths differ.

    Raises:
        ValueError: ``table`` is too short for the hierarchical decomposition or for the vectors of
            ``hierarchical``.
    """
    if not isinstance(module, (Learned, Hierarchical)):
        return None
    weight = module.weight.detach()
    if table.dim() != 2 or table.size(1) != weight.size(1):
        return None
    before, after = len(table), len(weight)
    if isinstance(module, Hierarchical):
        if after > before:
            raise ValueError(
                f"`table_size` of hierarchical must be at most {before}, the rows of the "
                f"checkpoint's table that it is derived from, but is {after} instead."
            )
        vectors = decomposed(table[:after].to(weight), module.alpha)
        return vectors, f"{after} vectors derived from the first {after} of {before} rows"
    rows = GROWTH_METHODS[method](table.to(weight), weight)
    if method != "copy":
        return rows, f"{after} rows out of {before} by grow_table={method}"
    if after <= before:
        return rows, f"the first {after} of {before} rows"
    return rows, f"{before} rows copied, {after - before} new"
