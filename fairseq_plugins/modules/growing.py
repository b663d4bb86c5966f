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


def grow_table(module: nn.Module, table: Tensor, how: str) -> tuple[Tensor, str] | None:
    """Make new rows for a position table from a checkpoint's table (n, C).

    Args:
        module: encoding of the model that needs rows (m, C).
        table: table of a ``learned`` encoding in a checkpoint.
        how: one of ``GROWTH_METHODS``, for a table of ``learned``.

    Returns:
        The rows and a description for the log; None if the module has no such table or the widths
        differ.

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
    rows = GROWTH_METHODS[how](table.to(weight), weight)
    if after <= before and how == "copy":
        return rows, f"the first {after} of {before} rows"
    if how == "copy":
        return rows, f"{before} rows copied, {after - before} new"
    return rows, f"{after} rows out of {before} by grow_table={how}"
