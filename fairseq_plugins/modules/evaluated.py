"""Models in evaluation: known overrides, the longest sequence and reproducible draws."""

from typing import Any

import torch
from fairseq.models import BaseFairseqModel
from omegaconf import OmegaConf

from fairseq_plugins.encodings import Stochastic
from fairseq_plugins.modules.lengths import longest_sequence
from fairseq_plugins.modules.overrides import check_overrides


class EvaluatedModel(BaseFairseqModel):
    """Mixin that checks overrides, limits sequences and seeds stochastic encodings.

    fairseq drops sequences longer than ``max_positions()``. During training this is the configured
    length. Commands that evaluate or generate call ``prepare_for_inference_`` first; from then on
    only the encodings limit the length, so ``fairseq-eval-lm`` can score longer sequences.
    """

    is_prepared = False

    @property
    def is_stochastic(self) -> bool:
        """Return whether any encoding of the model draws random numbers."""
        return any(isinstance(module, Stochastic) for module in self.modules())

    def prepare_for_inference_(self, cfg: Any) -> None:
        """Check the overrides, prepare as fairseq does, lift the limit and seed by ``common.seed``.

        fairseq-train and fairseq-generate seed PyTorch themselves, fairseq-eval-lm does not.

        Raises:
            OptionError: an override of an unknown option.
        """
        check_overrides(cfg, getattr(type(self), "__dataclass"))
        super().prepare_for_inference_(cfg)
        if self.is_stochastic:
            torch.manual_seed(cfg.common.seed)
        self.is_prepared = True

    def load_state_dict(
        self, state_dict: Any, strict: bool = True, model_cfg: Any = None, args: Any = None
    ) -> Any:
        """Load weights as fairseq does; check overrides and seed as fairseq-validate does not.

        It neither seeds PyTorch nor calls ``prepare_for_inference_``, but writes its options into
        the checkpoint's. A resumed training is seeded at every update. Outside fairseq's loaders
        ``model_cfg`` is None, and nothing is seeded.

        Raises:
            OptionError: an override of an unknown option.
        """
        if OmegaConf.is_config(model_cfg):
            check_overrides(model_cfg._get_root(), getattr(type(self), "__dataclass"))
        result = super().load_state_dict(state_dict, strict, model_cfg, args)
        if model_cfg is not None and self.is_stochastic:
            torch.manual_seed(1)
        return result

    def max_positions(self) -> Any:
        """Return the longest sequence; (source, target) for an encoder-decoder."""
        if not self.is_prepared:
            return super().max_positions()
        if not (hasattr(self, "encoder") and hasattr(self, "decoder")):
            return longest_sequence(self)
        between = [layer.encoder_attn for layer in self.decoder.layers]
        return longest_sequence(self.encoder, *between), longest_sequence(self.decoder)

    def max_decoder_positions(self) -> int:
        """Return the longest target that fairseq generates."""
        limits = self.max_positions()
        return int(limits[1] if isinstance(limits, tuple) else limits)
