"""A learned table of positions out of a checkpoint's that is shorter, or of another encoding."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fairseq_plugins.common.errors import NoNumberError
from fairseq_plugins.encodings.absolute import Learned
from fairseq_plugins.encodings.hierarchical import Hierarchical, combined, decomposed
from fairseq_plugins.encodings.tables import continued_rows, interpolated_rows

SU_ALPHA = 0.4  # the weight of the coarse index that Su proposes


def _hierarchical(table: Tensor, fresh: Tensor) -> Tensor:
    size, end = len(fresh), len(table) ** 2
    if size > end:
        raise NoNumberError(
            f"`grow_table=hierarchical` must make at most {end} positions, the square of the "
            f"checkpoint's {len(table)} rows, but is to make {size} instead."
        )
    positions = torch.arange(size, device=table.device)
    return combined(decomposed(table, SU_ALPHA), SU_ALPHA, positions)


GROWING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "copy": continued_rows,
    "interpolate": lambda table, fresh: interpolated_rows(table, len(fresh)),
    "hierarchical": _hierarchical,
}


def grown(module: nn.Module, table: Tensor, how: str) -> tuple[Tensor, str] | None:
    """A table's new rows from a checkpoint's table (n, C), and what they are in words.

    Args:
        module: of the model, which the rows (m, C) are for.
        table: of ``learned``, in a checkpoint.
        how: one of ``GROWING``, for a table of ``learned``.

    Returns:
        None for a module without such a table, or where widths differ.

    Raises:
        ValueError: more positions than a hierarchical decomposition of ``table`` has, or more
            vectors of ``hierarchical`` than rows that they can be derived from.
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
    rows = GROWING[how](table.to(weight), weight)
    if after <= before and how == "copy":
        return rows, f"the first {after} of {before} rows"
    if how == "copy":
        return rows, f"{before} rows copied, {after - before} new"
    return rows, f"{after} rows out of {before} by grow_table={how}"
