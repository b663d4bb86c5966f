"""A training in a job, with PyTorch's DDP, which a cluster uses, where there is no GPU.

fairseq names a device for each process, which DDP refuses for models on a CPU: here it names none.
Started by torchrun.
"""

import functools
import os
from typing import Any

import torch
from fairseq.models import distributed_fairseq_model

from fairseq_plugins.runner import training_job


@functools.wraps(torch.nn.parallel.DistributedDataParallel)
def without_device(*, device_ids: Any, output_device: Any, **options: Any) -> torch.nn.Module:
    return torch.nn.parallel.DistributedDataParallel(**options)


if __name__ == "__main__":
    distributed_fairseq_model.DistributedDataParallel = without_device
    training_job._CHECK_SECONDS = float(os.environ.get("LOOK_SECONDS", 0.0))
    training_job.main()
