"""What is typed and what is printed: options, dry runs, Slurm."""

import re
import sys
from pathlib import Path

import pytest

from fairseq_plugins.cli.train_table import main
from fairseq_plugins.experiments.training import SRUN
from fairseq_plugins.runner.launcher import executable

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scale", "huge"], "invalid choice: 'huge'"),
        (["--attention", "softmax"], "`--attention` must be among linear, vanilla"),
        (["--seeds", "2147483648"], "from 0 to 2147483647, but is '2147483648'"),
        (["--seeds", "-1"], "from 0 to 2147483647, but is '-1'"),
        (["--seeds", "1,two"], "`--seeds` must be an integer from 0 to 2147483647, but is 'two'"),
        (["--rows", "roope"], "Did you mean 'rope'"),
        (["--rows", "t5", "--attention", "linear"], "attn_bias"),
        (["--scale", "paper", "--rows", "rope", "--gpus", "3"], "must divide the total batch"),
        (
            ["--rows", "rope", "--slurm", "--gpus", "2", "--jobs", "5"],
            "`--jobs` times `--gpus` must be at most the 8 GPUs of a node with --slurm",
        ),
    ],
)
def test_wrong_options_are_refused_even_in_a_dry_run(root, capsys, arguments, message):
    with pytest.raises(SystemExit) as stopped:
        main(["table2", "--dry-run", *arguments], root)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_dry_run_prints_exact_commands_without_data_or_gpus(tmp_path, capsys):
    (tmp_path / "configs").symlink_to(CONFIGS)
    words = ["table2", "--scale", "paper", "--rows", "lrpe_type2", "--gpus", "8", "--dry-run"]
    assert main(words, tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "scripts/prepare_wikitext103.sh" in lines
    trainings = [line for line in lines if line.startswith("fairseq-hydra-train ")]
    assert trainings[0] == (
        "fairseq-hydra-train --config-dir configs --config-name wikitext103_lm model=lrpe_type2 "
        "scale/lm=paper model.attention_type=linear common.seed=1 run=node8 common.cpu=false "
        "dataset.batch_size=16 'optimization.update_freq=[1]' "
        "distributed_training.distributed_world_size=8 "
        "checkpoint.save_dir=checkpoints/table2/paper/lrpe_type2-linear-s1"
    )
    assert len(trainings) == 2
    evaluations = [line for line in lines if line.startswith("fairseq-eval-lm ")]
    assert len(evaluations) == 8  # two attentions, two subsets, two contexts
    assert sum("--context-window 400" in line for line in evaluations) == 4
    assert [p.name for p in tmp_path.iterdir()] == ["configs"]


def test_dry_run_for_slurm_prints_the_jobs(root, capsys):
    words = ["--rows", "rope", "--attention", "linear", "--gpus", "16", "--slurm", "--dry-run"]
    assert main(["table2", "--scale", "paper", *words], root) == 0
    lines = capsys.readouterr().out.splitlines()
    # Sixteen GPUs train, one of them measures, none renders.
    training, measuring, page = [line for line in lines if line.startswith("sbatch ")]
    assert "--nodes=2 --ntasks-per-node=1 --gpus-per-node=8 --cpus-per-gpu=4" in training
    assert "--nodes=1 --ntasks-per-node=1 --gpus-per-node=1 --cpus-per-gpu=4" in measuring
    assert "--cpus-per-task=1" in page and "--gpus" not in page.partition("--wrap")[0]
    assert lines.index("mkdir -p checkpoints/table2/paper") < lines.index(training)
    wrapped = (
        "'--wrap=exec scripts/table2.sh --scale paper --rows rope --attention linear --seeds 1 "
        "--gpus 16 --srun --stage "
    )
    assert f"{wrapped}train'" in training and f"{wrapped}evaluate'" in measuring
    assert "scripts/table2.sh --scale paper --rows rope --render" in page
    for job in (training, measuring, page):
        for word in ("--requeue", "--open-mode=append", "singleton"):
            assert word in job
    # The page takes seconds, and nothing of it could be kept.
    assert ["--signal=B:USR1@120" in job for job in (training, measuring, page)] == [True] * 2 + [
        False
    ]
    assert any("runs: srun --ntasks-per-node=1 --kill-on-bad-exit=1 fairseq" in x for x in lines)
    assert any("run=slurm" in line for line in lines)


@pytest.mark.parametrize(
    ("table", "recipe", "measured"),
    [
        ("table4", "wmt14_en_de", "fairseq-generate data/wmt14-en-de "),
        ("table8", "wikitext103_mlm", None),
        ("figure2", "wikitext103_mlm", None),
        ("bert_table4", "squad_v1", "python -m fairseq_plugins.squad predict "),
    ],
)
def test_every_table_prints_its_commands_for_a_node_and_for_slurm(
    tmp_path, capsys, table, recipe, measured
):
    (tmp_path / "configs").symlink_to(CONFIGS)
    words = [table, "--scale", "paper", "--rows", "shaw", "--attention", "vanilla"]
    words += ["--seeds", "1", "--gpus", "8", "--dry-run"]
    assert main(words, tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    trainings = [line for line in lines if f"--config-name {recipe} model=shaw" in line]
    assert len(trainings) == 1
    assert "run=node8" in trainings[0]
    assert "distributed_training.distributed_world_size=8" in trainings[0]
    assert measured is None or any(line.startswith(measured) for line in lines)
    assert main([*words, "--slurm"], tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    jobs = [line for line in lines if line.startswith("sbatch ")]
    script = "table8" if table == "figure2" else table
    own = [
        job for job in jobs if f"--wrap=exec scripts/{script}.sh --scale paper --rows shaw" in job
    ]
    assert own and "--render" in jobs[-1]
    assert any(
        f"srun --ntasks-per-node=1 --kill-on-bad-exit=1 fairseq-hydra-train --config-dir configs "
        f"--config-name {recipe} " in line
        for line in lines
    )


def test_a_page_is_rendered_from_what_there_is(root, capsys):
    """On a machine without GPUs or data, where jobs have left some of the results."""
    assert main(["table2", "--scale", "paper", "--rows", "rope", "--render"], root) == 0
    said = capsys.readouterr().out
    assert "LRPE, Table 2" in said and "The whole table: " in said
    assert "Base" in (root / "results" / "table2" / "paper.md").read_text()


def test_the_cluster_may_have_its_own_number_of_cpus(root, monkeypatch, capsys):
    monkeypatch.setenv("SBATCH_CPUS_PER_GPU", "6")
    words = ["--rows", "rope", "--attention", "linear", "--slurm", "--dry-run"]
    assert main(["table2", "--scale", "paper", *words], root) == 0
    assert "--cpus-per-gpu" not in capsys.readouterr().out


def test_jobs_on_one_node_meet_at_ports_of_their_own(root, monkeypatch, capsys):
    ports = []
    for job in ("123456", "123457"):
        monkeypatch.setenv("SLURM_JOB_ID", job)
        words = ["--rows", "rope", "--attention", "linear", "--gpus", "2", "--srun", "--dry-run"]
        assert main(["table2", "--scale", "paper", *words], root) == 0
        said = capsys.readouterr().out
        ports.append(int(re.search(r"distributed_port=(\d+)", said)[1]))
    assert ports[1] == ports[0] + 1 and 10_000 <= ports[0] < 30_000
    assert main(["table2", "--scale", "paper", *words[:-2], "--dry-run"], root) == 0
    assert "distributed_port" not in capsys.readouterr().out


def test_srun_stays_in_front_of_the_interpreter():
    words = executable([*SRUN, "fairseq-hydra-train", "model=rope"])
    assert words == [
        *(*SRUN, sys.executable, "-m", "fairseq_cli.hydra_train"),
        "model=rope",
    ]
