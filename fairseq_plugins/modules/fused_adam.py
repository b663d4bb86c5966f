"""fairseq's Adam and gradient norm on a GPU, in a few kernels in place of eight per parameter.

fairseq takes both from apex where apex is installed. PyTorch has kernels over many tensors too,
and training small models is bound by the number of kernels.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from fairseq import utils
from fairseq.optim import adam
from torch import Tensor


def adam_update(
    parameters: Sequence[Tensor],
    states: Sequence[dict[str, Any]],
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> None:
    """Update parameters and their averages as `fairseq.optim.adam.Adam.step` does.

    Args:
        parameters: float32, with gradients, on one device.
        states: ``exp_avg``, ``exp_avg_sq`` and ``step`` (already counted, the same for all) of
            each parameter.
        lr: learning rate.
        betas: decay of the two averages.
        eps: added to the root of the second average, before its bias is corrected (fairseq) and
            not after (PyTorch, Kingma and Ba).
        weight_decay: decoupled, multiplied by the learning rate.
    """
    step = states[0]["step"]
    torch._fused_adamw_(
        list(parameters),
        [_gradient(one) for one in parameters],
        [one["exp_avg"] for one in states],
        [one["exp_avg_sq"] for one in states],
        [],
        [torch.full((), float(step), device=parameters[0].device)] * len(parameters),
        lr=lr,
        beta1=betas[0],
        beta2=betas[1],
        weight_decay=weight_decay,
        # sqrt(v) / c + eps / c with c = sqrt(1 - beta2^step) is fairseq's (sqrt(v) + eps) / c.
        eps=eps / math.sqrt(1 - betas[1] ** step),
        amsgrad=False,
        maximize=False,
    )


def _gradient(parameter: Tensor) -> Tensor:
    """Return the gradient with the strides of its parameter, as the kernel needs it."""
    gradient = parameter.grad
    assert gradient is not None
    if gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)


class FusedAdam(adam.Adam):
    """fairseq's Adam with one kernel for all float32 parameters of a GPU.

    Parameters elsewhere or of other types are updated by fairseq's own code. States, and so
    checkpoints, are those of fairseq's class.
    """

    def __init__(self, params: Any, use_fp16_stats: bool = False, **options: Any) -> None:
        if use_fp16_stats:
            raise NotImplementedError("`fp16_adam_stats` must be False without apex, but is True")
        super().__init__(params, **options)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient."""
        if not all(_fits(group) for group in self.param_groups):
            return super().step(closure)
        loss = None if closure is None else closure()
        for group in self.param_groups:
            by_step: dict[tuple[torch.device, int], list[Tensor]] = defaultdict(list)
            for one in group["params"]:
                if one.grad is not None:
                    by_step[one.device, self._count_step(one)].append(one)
            options = {key: group[key] for key in ("lr", "betas", "eps", "weight_decay")}
            for parameters in by_step.values():
                adam_update(parameters, [self.state[one] for one in parameters], **options)
        return loss

    def _count_step(self, parameter: Tensor) -> int:
        state = self.state[parameter]
        if not state:
            state.update(
                step=0, exp_avg=torch.zeros_like(parameter), exp_avg_sq=torch.zeros_like(parameter)
            )
        state["step"] += 1
        return int(state["step"])


def _fits(group: dict[str, Any]) -> bool:
    if group.get("amsgrad"):
        return False
    return all(
        one.is_cuda and one.dtype == torch.float32 and not one.grad.is_sparse
        for one in group["params"]
        if one.grad is not None
    )


def gradient_norm(gradients: Sequence[Tensor], chunk_size: int = 0) -> Tensor:
    """Euclidean norm over all gradients, in float32; on a CPU to the bit that of fairseq.

    Args:
        gradients: of any shapes and floating-point types; the norm is on the first one's device.
        chunk_size: of apex's kernel, unused.
    """
    device = gradients[0].device
    if device.type == "cuda":
        norms = torch._foreach_norm(list(gradients), 2.0, dtype=torch.float32)
    else:
        norms = tuple(torch.norm(one, p=2, dtype=torch.float32) for one in gradients)
    return torch.norm(torch.stack([norm.to(device) for norm in norms]))


def replace_missing_apex() -> None:
    """Let fairseq use this optimizer and this norm if apex is not installed.

    CUDA is not initialised here: processes that are forked later could not use it.
    """
    if adam.get_fused_adam_class() is None:
        adam.get_fused_adam_class = lambda: FusedAdam
    if not utils.multi_tensor_l2norm_available:
        utils.multi_tensor_l2norm_available = True
        utils.multi_tensor_total_norm = gradient_norm
