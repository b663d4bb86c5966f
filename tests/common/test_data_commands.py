"""Every recipe's data has a command, and only what lies below data/ has one."""

from pathlib import Path

import pytest
import yaml

from fairseq_plugins.common.data_commands import COMMANDS, commands_for

REPOSITORY = Path(__file__).resolve().parents[2]


def folders_of_recipes() -> list[str]:
    found = []
    for path in sorted((REPOSITORY / "configs").rglob("*.yaml")):
        config = yaml.safe_load(path.read_text()) or {}
        for part in (config, config.get("task") or {}):
            if str(part.get("data", "")).startswith("data/"):
                found.append(part["data"])
    assert len(found) > 10
    return found


@pytest.mark.parametrize("folder", folders_of_recipes())
def test_the_data_of_every_recipe_has_a_command(folder: str) -> None:
    commands = commands_for(f"{folder}/dict.txt")
    assert commands
    for command in commands:
        assert (REPOSITORY / command.split()[0]).is_file()


def test_folders_are_recognised_wherever_the_repository_lies() -> None:
    assert commands_for("/home/me/work/data/toy/dict.txt") == COMMANDS["toy"]
    assert commands_for("/home/me/data/repository/data/toy") == COMMANDS["toy"]


@pytest.mark.parametrize("path", ["toy/dict.txt", "data/mine/dict.txt", "data", "", "mydata/toy"])
def test_what_is_not_ours_has_none(path: str) -> None:
    assert commands_for(path) == ()
