"""Triton kernels of causal linear attention; ``triton_linear`` describes how they work together.

Shapes: B batch, H heads, T tokens, D features, M values; ``pair`` counts the B x H pairs. Inputs
(B, H, T, D or M) come with their strides over batch, head and token and are dense in the last
dimension; outputs are contiguous. Features and values are padded to powers of two (``BLOCK_D``,
``BLOCK_M``), tokens to ``CHUNK``, by masks.

A slot is the state at the border of a segment in float32: (D, M) of ``kv``, and with ``NORMALIZE``
then (D) of the summed keys and (1) of their summed norms; it takes ``SLOT`` floats.

With ``NORMALIZE`` the output is divided by q . (sum of k), whose absolute value is clamped to at
least ``least``, and with ``FLOOR`` to ``min_cosine`` times |q| (sum of |k|). Backward needs two
statistics, (B, H, T) float32: ``raw``, the unclamped denominators, and ``sizes``, the sums of |k|.
"""

import triton
import triton.language as tl


@triton.jit
def _matrix(base, stride, first, local, columns, length, WIDTH: tl.constexpr):
    """Load rows ``first + local`` of a (length, WIDTH) matrix, zero outside it."""
    mask = ((first + local)[:, None] < length) & (columns[None, :] < WIDTH)
    # The row is wide before it is multiplied: a sequence-first tensor passes 2^31 elements.
    start = base + first.to(tl.int64) * stride
    return tl.load(start + local[:, None] * stride + columns[None, :], mask=mask, other=0.0)


@triton.jit
def _store_matrix(base, first, local, columns, length, WIDTH: tl.constexpr, values):
    mask = ((first + local)[:, None] < length) & (columns[None, :] < WIDTH)
    start = base + first.to(tl.int64) * WIDTH
    tl.store(
        start + local[:, None] * WIDTH + columns[None, :],
        values.to(base.dtype.element_ty),
        mask=mask,
    )


@triton.jit
def _pair_start(base, pair, heads, batch_stride, head_stride):
    batch = (pair // heads).to(tl.int64)
    return base + batch * batch_stride + (pair % heads).to(tl.int64) * head_stride


@triton.jit
def _slot_matrix(slot, d, m, D: tl.constexpr, M: tl.constexpr):
    mask = (d[:, None] < D) & (m[None, :] < M)
    return tl.load(slot + d[:, None] * M + m[None, :], mask=mask, other=0.0)


@triton.jit
def _dot(a, b, OPERAND: tl.constexpr, PRECISION: tl.constexpr):
    """Multiply a b in float32, from operands rounded to ``OPERAND``."""
    return tl.dot(a.to(OPERAND), b.to(OPERAND), input_precision=PRECISION)


@triton.jit
def _row_norms(x):
    wide = x.to(tl.float32)
    return tl.sqrt(tl.sum(wide * wide, 1))


@triton.jit
def _bound(norms, sizes, min_cosine, least, FLOOR: tl.constexpr):
    """Return the least absolute value of a denominator."""
    if FLOOR:
        return tl.maximum(min_cosine * norms * sizes, least)
    else:
        return tl.zeros_like(sizes) + least


@triton.jit
def _inverse(raw, bound, SIGNED: tl.constexpr):
    """Return 1 / denominators clamped to ``bound``; negative ones keep their sign if SIGNED."""
    if SIGNED:
        return tl.where(raw < 0, -1.0, 1.0) / tl.maximum(tl.abs(raw), bound)
    else:
        return 1.0 / tl.maximum(raw, bound)


@triton.jit
def segment_sums(
    a_ptr, a_batch, a_head, a_row,
    b_ptr, b_batch, b_head, b_row,
    start_ptr, slots_ptr, inverse_ptr, raw_grad_ptr, bound_grad_ptr,
    heads, length, segments,
    D: tl.constexpr, M: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    CHUNK: tl.constexpr, SEGMENT: tl.constexpr, SLOT: tl.constexpr,
    OPERAND: tl.constexpr, PRECISION: tl.constexpr,
    BACKWARD: tl.constexpr, NORMALIZE: tl.constexpr, HAS_START: tl.constexpr,
):  # fmt: skip
    """Write slots with the sum of a_t b_t^T over the segment before, or after with ``BACKWARD``.

    The slot without such a segment gets the start, or zeros. Forward, a and b are the keys and the
    values; backward, the queries and the gradients of the outputs.
    """
    pair, slot = tl.program_id(0), tl.program_id(1)
    segment = slot + 1 if BACKWARD else slot - 1
    local, d, m = tl.arange(0, CHUNK), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_M)
    kv = tl.zeros((BLOCK_D, BLOCK_M), tl.float32)
    total, size = tl.zeros((BLOCK_D,), tl.float32), tl.zeros((1,), tl.float32)
    row = pair.to(tl.int64) * length
    if (segment < 0) | (segment >= segments):
        if HAS_START:
            kv = _slot_matrix(start_ptr + pair.to(tl.int64) * D * M, d, m, D, M)
    else:
        a_rows = _pair_start(a_ptr, pair, heads, a_batch, a_head)
        b_rows = _pair_start(b_ptr, pair, heads, b_batch, b_head)
        begin = segment * SEGMENT
        for i in range(0, tl.cdiv(tl.minimum(length - begin, SEGMENT), CHUNK)):
            first = begin + i * CHUNK
            a = _matrix(a_rows, a_row, first, local, d, length, D)
            b = _matrix(b_rows, b_row, first, local, m, length, M)
            if NORMALIZE:
                norms, wide = _row_norms(a), a.to(tl.float32)
                if BACKWARD:
                    at, inside = row + first + local, first + local < length
                    inverse = tl.load(inverse_ptr + at, mask=inside, other=0.0)
                    raw_grad = tl.load(raw_grad_ptr + at, mask=inside, other=0.0)
                    bound_grad = tl.load(bound_grad_ptr + at, mask=inside, other=0.0)
                    b = b.to(tl.float32) * inverse[:, None]
                    wide *= raw_grad[:, None]
                    norms *= bound_grad
                total += tl.sum(wide, 0)
                size += tl.sum(norms, 0)
            kv += _dot(tl.trans(a), b, OPERAND, PRECISION)
    slots_ptr += (pair.to(tl.int64) * segments + slot) * SLOT
    mask = (d[:, None] < D) & (m[None, :] < M)
    tl.store(slots_ptr + d[:, None] * M + m[None, :], kv, mask=mask)
    if NORMALIZE:
        tl.store(slots_ptr + D * M + d, total, mask=d < D)
        tl.store(slots_ptr + D * M + D + tl.arange(0, 1), size)


@triton.jit
def scan_slots(
    slots_ptr, segments,
    SLOT: tl.constexpr, BLOCK: tl.constexpr, SLOTS: tl.constexpr, BACKWARD: tl.constexpr,
):  # fmt: skip
    """Sum up the slots of each pair in place, from the last one with ``BACKWARD``."""
    pair = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    base = slots_ptr + pair * segments * SLOT + columns[None, :]
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(0, tl.cdiv(segments, SLOTS)):
        order = i * SLOTS + tl.arange(0, SLOTS)
        rows = segments - 1 - order if BACKWARD else order
        mask = (order[:, None] < segments) & (columns[None, :] < SLOT)
        at = base + rows[:, None].to(tl.int64) * SLOT
        values = tl.load(at, mask=mask, other=0.0)
        tl.store(at, tl.cumsum(values, 0) + total[None, :], mask=mask)
        total += tl.sum(values, 0)


@triton.jit
def outputs(
    q_ptr, q_batch, q_head, q_row,
    k_ptr, k_batch, k_head, k_row,
    v_ptr, v_batch, v_head, v_row,
    slots_ptr, output_ptr, end_ptr, raw_ptr, sizes_ptr,
    heads, length, segments, min_cosine, least,
    D: tl.constexpr, M: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    CHUNK: tl.constexpr, SEGMENT: tl.constexpr, SLOT: tl.constexpr,
    OPERAND: tl.constexpr, PRECISION: tl.constexpr,
    NORMALIZE: tl.constexpr, FLOOR: tl.constexpr, SIGNED: tl.constexpr,
):  # fmt: skip
    """Compute a segment's outputs; without ``NORMALIZE`` the last one stores the final ``kv``."""
    pair, segment = tl.program_id(0), tl.program_id(1)
    q_ptr = _pair_start(q_ptr, pair, heads, q_batch, q_head)
    k_ptr = _pair_start(k_ptr, pair, heads, k_batch, k_head)
    v_ptr = _pair_start(v_ptr, pair, heads, v_batch, v_head)
    row = pair.to(tl.int64) * length
    output_ptr += row * M
    slots_ptr += (pair.to(tl.int64) * segments + segment) * SLOT
    local, d, m = tl.arange(0, CHUNK), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_M)
    causal = local[:, None] >= local[None, :]
    kv = _slot_matrix(slots_ptr, d, m, D, M)
    if NORMALIZE:
        k_sum = tl.load(slots_ptr + D * M + d, mask=d < D, other=0.0)
        size = tl.load(slots_ptr + D * M + D + tl.arange(0, 1))
    begin = segment * SEGMENT
    for i in range(0, tl.cdiv(tl.minimum(length - begin, SEGMENT), CHUNK)):
        first = begin + i * CHUNK
        q = _matrix(q_ptr, q_row, first, local, d, length, D)
        k = _matrix(k_ptr, k_row, first, local, d, length, D)
        v = _matrix(v_ptr, v_row, first, local, m, length, M)
        weights = tl.where(causal, tl.dot(q, tl.trans(k), input_precision=PRECISION), 0.0)
        out = _dot(weights, v, OPERAND, PRECISION) + _dot(q, kv, OPERAND, PRECISION)
        kv += tl.dot(tl.trans(k), v, input_precision=PRECISION)
        if NORMALIZE:
            raw = tl.sum(weights, 1) + tl.sum(q.to(tl.float32) * k_sum[None, :], 1)
            norms = _row_norms(k)
            sizes = size + tl.sum(tl.where(causal, norms[None, :], 0.0), 1)
            bound = _bound(_row_norms(q), sizes, min_cosine, least, FLOOR)
            out *= _inverse(raw, bound, SIGNED)[:, None]
            tl.store(raw_ptr + row + first + local, raw, mask=first + local < length)
            tl.store(sizes_ptr + row + first + local, sizes, mask=first + local < length)
            k_sum += tl.sum(k.to(tl.float32), 0)
            size += tl.sum(norms, 0)
        _store_matrix(output_ptr, first, local, m, length, M, out)
    if not NORMALIZE:  # noqa: SIM102 (a constant of the compiler, unlike the next)
        if segment == segments - 1:
            mask = (d[:, None] < D) & (m[None, :] < M)
            end = end_ptr + pair.to(tl.int64) * D * M
            tl.store(end + d[:, None] * M + m[None, :], kv, mask=mask)


@triton.jit
def row_gradients(
    q_ptr, q_batch, q_head, q_row,
    grad_ptr, grad_batch, grad_head, grad_row,
    output_ptr, raw_ptr, sizes_ptr, inverse_ptr, raw_grad_ptr, bound_grad_ptr,
    heads, length, min_cosine, least,
    D: tl.constexpr, M: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    CHUNK: tl.constexpr, FLOOR: tl.constexpr, SIGNED: tl.constexpr,
):  # fmt: skip
    """Store, by query, 1 / denominator, and the gradients of ``raw`` and of |q| (sum of |k|)."""
    pair = tl.program_id(0)
    first = tl.program_id(1) * CHUNK
    q_ptr = _pair_start(q_ptr, pair, heads, q_batch, q_head)
    grad_ptr = _pair_start(grad_ptr, pair, heads, grad_batch, grad_head)
    row = pair.to(tl.int64) * length
    local, d, m = tl.arange(0, CHUNK), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_M)
    at, inside = row + first + local, first + local < length
    raw = tl.load(raw_ptr + at, mask=inside, other=1.0)
    sizes = tl.load(sizes_ptr + at, mask=inside, other=1.0)
    grad = _matrix(grad_ptr, grad_row, first, local, m, length, M).to(tl.float32)
    output = _matrix(output_ptr + row * M, M, first, local, m, length, M).to(tl.float32)
    norms = tl.zeros_like(sizes)
    if FLOOR:
        norms = _row_norms(_matrix(q_ptr, q_row, first, local, d, length, D))
    bound = _bound(norms, sizes, min_cosine, least, FLOOR)
    sign = tl.where(raw < 0, -1.0, 1.0)
    inverse = _inverse(raw, bound, SIGNED)
    change = -tl.sum(grad * output, 1) * inverse
    free = (tl.abs(raw) if SIGNED else raw) >= bound
    floored = (~free) & (bound > least)
    tl.store(inverse_ptr + at, inverse, mask=inside)
    tl.store(raw_grad_ptr + at, tl.where(free, change, 0.0), mask=inside)
    bound_grad = tl.where(floored, sign * change * min_cosine, 0.0)
    tl.store(bound_grad_ptr + at, bound_grad, mask=inside)


@triton.jit
def query_gradients(
    q_ptr, q_batch, q_head, q_row,
    k_ptr, k_batch, k_head, k_row,
    v_ptr, v_batch, v_head, v_row,
    grad_ptr, grad_batch, grad_head, grad_row,
    slots_ptr, grad_q_ptr, sizes_ptr, inverse_ptr, raw_grad_ptr, bound_grad_ptr,
    heads, length, segments,
    D: tl.constexpr, M: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    CHUNK: tl.constexpr, SEGMENT: tl.constexpr, SLOT: tl.constexpr,
    OPERAND: tl.constexpr, PRECISION: tl.constexpr,
    NORMALIZE: tl.constexpr, FLOOR: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of a segment's queries, from the states of the forward pass."""
    pair, segment = tl.program_id(0), tl.program_id(1)
    q_ptr = _pair_start(q_ptr, pair, heads, q_batch, q_head)
    k_ptr = _pair_start(k_ptr, pair, heads, k_batch, k_head)
    v_ptr = _pair_start(v_ptr, pair, heads, v_batch, v_head)
    grad_ptr = _pair_start(grad_ptr, pair, heads, grad_batch, grad_head)
    row = pair.to(tl.int64) * length
    grad_q_ptr += row * D
    slots_ptr += (pair.to(tl.int64) * segments + segment) * SLOT
    local, d, m = tl.arange(0, CHUNK), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_M)
    causal = local[:, None] >= local[None, :]
    kv = _slot_matrix(slots_ptr, d, m, D, M)
    if NORMALIZE:
        k_sum = tl.load(slots_ptr + D * M + d, mask=d < D, other=0.0)
    begin = segment * SEGMENT
    for i in range(0, tl.cdiv(tl.minimum(length - begin, SEGMENT), CHUNK)):
        first = begin + i * CHUNK
        k = _matrix(k_ptr, k_row, first, local, d, length, D)
        v = _matrix(v_ptr, v_row, first, local, m, length, M)
        grad = _matrix(grad_ptr, grad_row, first, local, m, length, M)
        if NORMALIZE:
            at, inside = row + first + local, first + local < length
            inverse = tl.load(inverse_ptr + at, mask=inside, other=0.0)
            raw_grad = tl.load(raw_grad_ptr + at, mask=inside, other=0.0)
            grad = grad.to(tl.float32) * inverse[:, None]
        grad = grad.to(OPERAND)
        weights = _dot(grad, tl.trans(v), OPERAND, PRECISION)
        if NORMALIZE:
            weights += raw_grad[:, None]
        weights = tl.where(causal, weights, 0.0)
        grad_q = _dot(weights, k, OPERAND, PRECISION)
        grad_q += _dot(grad, tl.trans(kv), OPERAND, PRECISION)
        kv += tl.dot(tl.trans(k), v, input_precision=PRECISION)
        if NORMALIZE:
            grad_q += raw_grad[:, None] * k_sum[None, :]
            k_sum += tl.sum(k.to(tl.float32), 0)
        if FLOOR:
            q = _matrix(q_ptr, q_row, first, local, d, length, D)
            norms = _row_norms(q)
            sizes = tl.load(sizes_ptr + at, mask=inside, other=0.0)
            bound_grad = tl.load(bound_grad_ptr + at, mask=inside, other=0.0)
            along = bound_grad * sizes / tl.where(norms > 0, norms, 1.0)
            grad_q += along[:, None] * q.to(tl.float32)
        _store_matrix(grad_q_ptr, first, local, d, length, D, grad_q)


@triton.jit
def key_value_gradients(
    q_ptr, q_batch, q_head, q_row,
    k_ptr, k_batch, k_head, k_row,
    v_ptr, v_batch, v_head, v_row,
    grad_ptr, grad_batch, grad_head, grad_row,
    slots_ptr, grad_k_ptr, grad_v_ptr, grad_start_ptr,
    inverse_ptr, raw_grad_ptr, bound_grad_ptr,
    heads, length, segments,
    D: tl.constexpr, M: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    CHUNK: tl.constexpr, SEGMENT: tl.constexpr, SLOT: tl.constexpr,
    OPERAND: tl.constexpr, PRECISION: tl.constexpr,
    NORMALIZE: tl.constexpr, FLOOR: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of a segment's keys and values, from its last chunk to its first.

    ``later`` is the gradient of the state that each key enters: the sum of q_s grad_s^T over the
    queries after it. The first segment also stores it as the gradient of the start.
    """
    pair, segment = tl.program_id(0), tl.program_id(1)
    q_ptr = _pair_start(q_ptr, pair, heads, q_batch, q_head)
    k_ptr = _pair_start(k_ptr, pair, heads, k_batch, k_head)
    v_ptr = _pair_start(v_ptr, pair, heads, v_batch, v_head)
    grad_ptr = _pair_start(grad_ptr, pair, heads, grad_batch, grad_head)
    row = pair.to(tl.int64) * length
    grad_k_ptr += row * D
    grad_v_ptr += row * M
    slots_ptr += (pair.to(tl.int64) * segments + segment) * SLOT
    local, d, m = tl.arange(0, CHUNK), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_M)
    causal = local[:, None] <= local[None, :]
    later = _slot_matrix(slots_ptr, d, m, D, M)
    if NORMALIZE:
        later_sum = tl.load(slots_ptr + D * M + d, mask=d < D, other=0.0)
        later_size = tl.load(slots_ptr + D * M + D + tl.arange(0, 1))
    begin = segment * SEGMENT
    chunks = tl.cdiv(tl.minimum(length - begin, SEGMENT), CHUNK)
    for i in range(0, chunks):
        first = begin + (chunks - 1 - i) * CHUNK
        q = _matrix(q_ptr, q_row, first, local, d, length, D)
        k = _matrix(k_ptr, k_row, first, local, d, length, D)
        v = _matrix(v_ptr, v_row, first, local, m, length, M)
        grad = _matrix(grad_ptr, grad_row, first, local, m, length, M)
        if NORMALIZE:
            at, inside = row + first + local, first + local < length
            inverse = tl.load(inverse_ptr + at, mask=inside, other=0.0)
            raw_grad = tl.load(raw_grad_ptr + at, mask=inside, other=0.0)
            grad = grad.to(tl.float32) * inverse[:, None]
        grad = grad.to(OPERAND)
        weights = tl.where(causal, tl.dot(k, tl.trans(q), input_precision=PRECISION), 0.0)
        grad_v = _dot(weights, grad, OPERAND, PRECISION) + _dot(k, later, OPERAND, PRECISION)
        _store_matrix(grad_v_ptr, first, local, m, length, M, grad_v)
        weights = _dot(v, tl.trans(grad), OPERAND, PRECISION)
        if NORMALIZE:
            weights += raw_grad[None, :]
        weights = tl.where(causal, weights, 0.0)
        grad_k = _dot(weights, q, OPERAND, PRECISION)
        grad_k += _dot(v, tl.trans(later), OPERAND, PRECISION)
        later += _dot(tl.trans(q), grad, OPERAND, PRECISION)
        if NORMALIZE:
            grad_k += later_sum[None, :]
            later_sum += tl.sum(q.to(tl.float32) * raw_grad[:, None], 0)
        if FLOOR:
            bound_grad = tl.load(bound_grad_ptr + at, mask=inside, other=0.0) * _row_norms(q)
            size_grad = later_size + tl.sum(tl.where(causal, bound_grad[None, :], 0.0), 1)
            norms = _row_norms(k)
            along = size_grad / tl.where(norms > 0, norms, 1.0)
            grad_k += along[:, None] * k.to(tl.float32)
            later_size += tl.sum(bound_grad, 0)
        _store_matrix(grad_k_ptr, first, local, d, length, D, grad_k)
    if not NORMALIZE:  # noqa: SIM102 (a constant of the compiler, unlike the next)
        if segment == 0:
            mask = (d[:, None] < D) & (m[None, :] < M)
            grad_start = grad_start_ptr + pair.to(tl.int64) * D * M
            tl.store(grad_start + d[:, None] * M + m[None, :], later, mask=mask)
