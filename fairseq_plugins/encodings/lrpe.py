"""LRPE: the family W_s = P^H Lambda(s) P of unitary relative encodings, and RoPE among it."""

import math
from typing import Literal

from fairseq_plugins.encodings.base import EncodingContext
from fairseq_plugins.encodings.bases import Basis, Cosine, Fourier, Householder, Identity, OddEven
from fairseq_plugins.encodings.cores import Core, Permutation, Phase, Rotation
from fairseq_plugins.encodings.frequencies import ThetaType, geometric, theta
from fairseq_plugins.encodings.registry import register_encoding
from fairseq_plugins.encodings.rotation import Layout
from fairseq_plugins.encodings.tables import Formula
from fairseq_plugins.encodings.unitary import LRPE, build_lrpe

Rotated = Literal["all", "half", "quarter"]
BasisName = Literal["identity", "householder", "odd_even", "fft", "dct"]

_PAPER = "LRPE, Table 1 and Appendix C.7"
_FORM = "W_s = P^H Lambda(s) P; "
_BASE = 10000.0


@register_encoding(
    "rope",
    known_as=("rotary", "roformer", "rotation"),
    summary="rotation of feature pairs by fixed angles",
    source="RoFormer (Su et al. 2021); LRPE, Eq. 9 and Appendix C.7; Gu et al. 2025, Eq. 8",
    formula="score = (R(s) q).(R(t) k), R(s) turns feature pair j by s 10000^(-2j/D)",
    p="identity",
)
@register_encoding(
    "lrpe_identity",
    summary="identity x learned rotation (row Identity of the ablation of P)",
    source="LRPE, Table 5",
    formula="W_s = Lambda(s); Lambda(s) turns feature pair j by s theta_j, theta learned",
    p="identity",
    learned_theta=True,
)
@register_encoding(
    "lrpe_dct",
    known_as=("cosine_transform",),
    summary="cosine transform x learned rotation",
    source="LRPE, the authors' code (no type of the paper's)",
    formula=_FORM + "P the orthonormal cosine transform, Lambda(s) turns pair j by s theta_j, "
    "theta learned",
    p="dct",
    learned_theta=True,
)
@register_encoding(
    "lrpe_type1",
    summary="Householder x fixed rotation of half the features",
    source=_PAPER,
    formula=_FORM + "P Householder, Lambda(s) turns half of the features by s theta_j",
    rotated="half",
)
@register_encoding(
    "lrpe_type2",
    known_as=("lrpe", "householder"),
    summary="Householder x learned rotation",
    source=_PAPER,
    formula=_FORM + "P Householder, Lambda(s) turns pair j by s theta_j, theta learned",
    learned_theta=True,
)
@register_encoding(
    "lrpe_type3",
    summary="learned Householder x learned rotation",
    source=_PAPER,
    formula=_FORM + "P learned Householder, theta learned",
    learned_p=True,
    learned_theta=True,
)
@register_encoding(
    "lrpe_type4",
    summary="Householder x powers of a permutation",
    source=_PAPER,
    formula=_FORM + "P Householder, Lambda(s) permutes the features s times",
    core="permutation",
)
@register_encoding(
    "lrpe_type5",
    summary="odd-even permutation x fixed rotation of half the features",
    source=_PAPER,
    formula=_FORM + "P odd-even, Lambda(s) turns half of the features by s theta_j",
    p="odd_even",
    rotated="half",
)
@register_encoding(
    "lrpe_type6",
    summary="odd-even permutation x learned rotation",
    source=_PAPER,
    formula=_FORM + "P odd-even, Lambda(s) turns pair j by s theta_j, theta learned",
    p="odd_even",
    learned_theta=True,
)
@register_encoding(
    "lrpe_type7",
    summary="odd-even permutation x powers of a permutation",
    source=_PAPER,
    formula=_FORM + "P odd-even, Lambda(s) permutes the features s times",
    p="odd_even",
    core="permutation",
)
@register_encoding(
    "lrpe_type8",
    summary="Fourier transform x complex exponentials",
    source=_PAPER,
    formula=_FORM + "P unitary Fourier matrix, Lambda(s) = diag exp(i s alpha_j)",
    p="fft",
    core="complex",
)
def lrpe(
    context: EncodingContext,
    *,
    p: BasisName = "householder",
    core: Literal["rotation", "permutation", "complex"] = "rotation",
    rotated: Rotated = "all",
    layout: Layout = "interleaved",
    theta_type: ThetaType = "a",
    base: float = _BASE,
    learned_p: bool = False,
    learned_theta: bool = False,
) -> LRPE:
    """The unitary relative encoding W_s = P^H Lambda(s) P.

    Args:
        context: of the model.
        p: P, the unitary change of basis. ``householder`` is I - 2 v v^T / (v^T v) with v drawn
            from a standard normal (Eq. 74); ``odd_even`` interleaves the two halves of the
            features (Eq. 75 as printed is no bijection; this is the pseudocode's); ``fft`` is the
            unitary Fourier matrix.
        core: Lambda(s). ``rotation`` of feature pairs by s theta (Eq. 24), ``permutation`` the
            s-th power of a random permutation (Eq. 25), ``complex`` diag exp(i s alpha) (Eq. 23).
        rotated: rotate ``all`` features, or the leading ``half``, D - floor(D / 2), rounded up to
            even. The paper's types 1 and 5 use ``half`` (Appendix C.7, q = floor(d/2)); its
            released code rotates ``all``, which makes type 5 half-split RoPE. ``quarter`` is
            D - floor(3 D / 4), as in GPT-NeoX.
        layout: which features form the pairs of a rotation.
        theta_type: ``a`` is 10000^(-2t/e); ``b`` and ``c`` depend on the longest position, so that
            causal models do not support them.
        base: base of the geometric angles, theta of type a and alpha.
        learned_p: learn the Householder vector v.
        learned_theta: learn the angles per step of ``rotation`` or ``complex``.

    Raises:
        ValueError: an odd head_dim where all features are rotated; ``learned_p`` without a
            Householder P; ``learned_theta`` with a permutation; theta types b and c in a causal
            model, without a rotation or with a ``base``.
    """
    return build_lrpe(
        context,
        basis(p, context.head_dim, is_learned=learned_p),
        _core(core, context, rotated, layout, theta_type, base, learned_theta),
    )


def basis(p: BasisName, dim: int, *, is_learned: bool) -> Basis:
    """Build P by its name.

    Raises:
        ValueError: ``is_learned`` for a P without a vector.
    """
    if p == "householder":
        return Householder(dim, is_learned=is_learned)
    if is_learned:
        raise ValueError(f"`learned_p=true` needs `p=householder`, but `p` is {p!r} instead.")
    plain: dict[str, type[Basis]] = {
        "identity": Identity,
        "odd_even": OddEven,
        "fft": Fourier,
        "dct": Cosine,
    }
    return plain[p](dim)


def _core(
    core: str,
    context: EncodingContext,
    rotated: Rotated,
    layout: Layout,
    theta_type: ThetaType,
    base: float,
    is_learned: bool,
) -> Core:
    dim = context.head_dim
    if core == "rotation":
        angles, count = rotation_angles(context, rotated, base, theta_type)
        return Rotation(angles, count, layout=layout, is_learned=is_learned)
    if core == "permutation" and is_learned:
        raise ValueError("`learned_theta=true` needs a core with angles, not `core=permutation`.")
    _check_base(base)
    of_rotation = (
        ("theta_type", theta_type, "a"),
        ("rotated", rotated, "all"),
        ("layout", layout, "interleaved"),
    )
    for name, value, default in of_rotation:
        if value != default:
            raise ValueError(f"`{name}={value}` needs `core=rotation`, not {core!r}.")
    if core == "complex":
        return Phase(Formula(geometric, (dim, dim, base)), dim, is_learned=is_learned)
    if base != _BASE:
        raise ValueError(f"`base={base:g}` needs a core with angles, not `core=permutation`.")
    return Permutation(dim)


def rotation_angles(
    context: EncodingContext, rotated: Rotated, base: float, theta_type: ThetaType = "a"
) -> tuple[Formula, int]:
    """Return the angles theta_t of ``lrpe``, float64, and their number, one per rotated pair.

    Raises:
        ValueError: see ``lrpe``.
    """
    dim = context.head_dim
    if rotated == "all" and dim % 2:
        raise ValueError(
            f"`head_dim` must be even for a rotation of all features, but is {dim} instead."
        )
    if rotated != "all" and dim < 3:
        raise ValueError(
            f"`head_dim` must be at least 3 for rotated={rotated}, but is {dim} instead."
        )
    _check_base(base)
    if theta_type != "a" and context.causal:
        raise ValueError(
            f"`theta_type={theta_type}` depends on the sequence's length, which a causal model "
            "does not know while it generates; use `theta_type=a`."
        )
    if theta_type != "a" and base != _BASE:
        raise ValueError(f"`base={base:g}` needs `theta_type=a`, not {theta_type!r}.")
    count = rotated_count(rotated, dim)
    return Formula(theta, (theta_type, count, base, context.max_positions)), count // 2


def rotated_count(rotated: Rotated, dim: int) -> int:
    """Return the number of rotated features of a head, an even number."""
    share = {"all": dim, "half": dim - dim // 2, "quarter": dim - 3 * dim // 4}[rotated]
    return share + share % 2


def _check_base(base: float) -> None:
    if not 1.0 < base < math.inf:
        raise ValueError(f"`base` must be finite and above 1, but is {base} instead.")
