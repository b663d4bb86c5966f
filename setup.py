"""Packages and the compiled library of the distribution; all else is in pyproject.toml.

A shim: the recipes in configs/ become a package of their own inside fairseq_plugins, which
pyproject.toml cannot say beside a search for packages.
"""

from setuptools import Extension, find_packages, setup

NATIVE = "fairseq_plugins/kernels/native"

setup(
    packages=[
        *find_packages(include=["fairseq_plugins", "fairseq_plugins.*"]),
        *find_packages(include=["fairseq_position_encodings", "fairseq_position_encodings.*"]),
        "fairseq_plugins.configs",
    ],
    package_dir={"fairseq_plugins": "fairseq_plugins", "fairseq_plugins.configs": "configs"},
    package_data={
        "fairseq_plugins": ["py.typed"],
        "fairseq_plugins.configs": ["**/*.yaml"],
        "fairseq_plugins.site": ["templates/*", "static/*", "static/vendor/*"],
        "fairseq_position_encodings": ["py.typed"],
    },
    ext_modules=[
        Extension(
            "fairseq_plugins.kernels.native._linear_attention",
            sources=[f"{NATIVE}/linear_attention.cpp"],
            depends=[f"{NATIVE}/tiles.inc"],
            language="c++",
            extra_compile_args=["-O3", "-std=c++17", "-pthread", "-g0"],
            extra_link_args=["-pthread"],
            py_limited_api=True,  # it uses nothing of Python, so one file serves every version
            optional=True,  # without a compiler PyTorch does the same, more slowly
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
