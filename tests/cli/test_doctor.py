"""The doctor says what is there, which attention paths that selects, and how to mend it."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fairseq_plugins.__main__ import COMMANDS, main
from fairseq_plugins.cli.doctor import (
    MISSING,
    TRITON_CAPABILITY,
    Facts,
    Gpu,
    Package,
    carries,
    diagnose,
)
from fairseq_plugins.cli.doctor import main as doctor_main
from fairseq_plugins.kernels.backend import CAPABILITY

ROOT = Path(__file__).parents[2]
CPU = Facts(
    python=(3, 11, 7),
    torch=Package("2.13.0+cpu"),
    fairseq=Package("0.12.3.1"),
    hydra=Package("1.3.2"),
    cpu_threads=2,
)
V100 = replace(
    CPU,
    torch=Package("2.13.0+cu126"),
    cuda_build="12.6",
    cuda_architectures=("sm_50", "sm_70", "sm_80", "sm_90"),
    gpus=(Gpu("V100", (7, 0), 32.0),) * 2,
)
A100 = replace(V100, gpus=(Gpu("A100", (8, 0), 80.0),))


def test_cpu_can_train():
    report = diagnose(CPU)
    assert report.ok
    assert "CPU flash kernel" in report.attention_paths["softmax"]
    assert "chunked PyTorch path on the CPU" in report.attention_paths["linear"]
    assert report.found["cuda"] == "no: this torch is built for the CPU"
    assert report.to_text().endswith("Training can run.")


def test_v100_takes_the_memory_efficient_kernel():
    report = diagnose(V100)
    assert report.ok
    softmax = report.attention_paths["softmax"]
    assert "memory-efficient kernel" in softmax
    assert "need compute capability 8.0, this is 7.0" in softmax
    assert "on the GPU" in report.attention_paths["linear"]
    assert report.found["gpu 1"] == "V100, compute capability 7.0, 32 GiB"


def test_capability_8_takes_flash():
    assert ", flash kernel in float16 and bfloat16" in diagnose(A100).attention_paths["softmax"]


def test_capability_8_takes_the_triton_kernel_where_triton_is_installed():
    assert TRITON_CAPABILITY == CAPABILITY
    linear = [
        diagnose(replace(facts, triton=Package("3.4.0"))).attention_paths["linear"]
        for facts in (A100, V100, CPU)
    ]
    assert [path.startswith("Triton kernel on the GPU") for path in linear] == [True, False, False]
    assert "chunked PyTorch path on the GPU" in diagnose(A100).attention_paths["linear"]


@pytest.mark.parametrize("triton", [MISSING, Package("3.4.0")])
def test_the_weakest_gpu_decides(triton):
    weak = replace(V100, triton=triton)
    both = replace(weak, gpus=A100.gpus + V100.gpus)
    assert diagnose(both).attention_paths == diagnose(weak).attention_paths


def test_a_gpu_that_the_build_has_no_code_for():
    report = diagnose(replace(V100, cuda_build="13.0", cuda_architectures=("sm_75", "sm_80")))
    assert [p.problem for p in report.problems] == [
        "this build of torch has no code for sm_70, only for sm_75, sm_80"
    ]
    assert "CUDA 12.6" in report.problems[0].remedy


def test_a_cuda_build_without_gpu_can_train():
    report = diagnose(replace(V100, gpus=()))
    assert report.ok
    assert report.found["cuda"] == "no: torch is built for CUDA 12.6, but sees no GPU"


@pytest.mark.parametrize(
    ("architectures", "capability", "expected"),
    [
        (["sm_80"], (8, 6), True),
        (["sm_86"], (8, 0), False),
        (["sm_75", "sm_80"], (7, 0), False),
        (["compute_70"], (9, 0), True),
        (["sm_90a"], (9, 0), True),
        (["compute_90a"], (10, 0), False),
        (["sm_100"], (10, 0), True),
        (["gfx90a"], (9, 0), False),
    ],
)
def test_carries(architectures, capability, expected):
    assert carries(architectures, capability) is expected


@pytest.mark.parametrize(
    ("change", "named", "remedy"),
    [
        ({"fairseq": MISSING}, "fairseq cannot be imported: not installed", "fairseq-fixed"),
        ({"torch": MISSING}, "torch cannot be imported: not installed", "make setup"),
        ({"python": (3, 10, 13)}, "Python must be 3.11 or newer, but is 3.10.13", "PYTHON="),
        ({"registration_error": "no module"}, "pe_transformer_lm: no module", "pip install"),
    ],
)
def test_what_is_missing_is_named_with_its_remedy(change, named, remedy):
    report = diagnose(replace(CPU, **change))
    assert not report.ok
    assert len(report.problems) == 1
    assert named in report.problems[0].problem
    assert remedy in report.problems[0].remedy
    assert named in report.to_text()
    assert "Training cannot run" in report.to_text()


def test_optional_packages_are_no_problem():
    found = diagnose(CPU).found
    assert found["apex"] == found["triton"] == "not installed (optional)"
    with_both = diagnose(replace(CPU, apex=Package("0.1"), triton=Package("3.4.0"))).found
    assert with_both["apex"] == "0.1: fairseq takes FusedAdam and FusedLayerNorm from it"
    assert with_both["triton"] == "3.4.0"


def run_doctor(before):
    """``python -m fairseq_plugins doctor`` in a fresh process, after the statement ``before``."""
    code = (
        f"import runpy, sys; {before}\n"
        "sys.argv = ['fairseq_plugins', 'doctor']\n"
        "runpy.run_module('fairseq_plugins', run_name='__main__', alter_sys=True)"
    )
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_here_training_can_run(capsys):
    assert doctor_main(["--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"]
    assert report["found"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert set(report) == {"ok", "found", "attention_paths", "problems"}


@pytest.mark.parametrize("package", ["torch", "fairseq"])
def test_without_a_package_the_doctor_says_so(package):
    done = run_doctor(f"sys.modules[{package!r}] = None")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{package} cannot be imported: not installed" in done.stdout
    assert "make setup" in done.stdout


def test_an_apex_that_is_not_nvidias_is_not_taken_for_it(tmp_path, monkeypatch, capsys):
    (tmp_path / "apex.py").write_text("__version__ = '0.9'\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert doctor_main(["--json"]) == 0
    assert "not NVIDIA's" in json.loads(capsys.readouterr().out)["found"]["apex"]
    del sys.modules["apex"]


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    text = capsys.readouterr().out
    assert all(command in text for command in COMMANDS)


def test_an_unknown_command_is_refused(capsys):
    with pytest.raises(SystemExit) as left:
        main(["docter"])
    assert left.value.code == 2
    assert "doctor" in capsys.readouterr().err
