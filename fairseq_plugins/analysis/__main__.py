"""Entry point of `python -m fairseq_plugins.analysis`, which results record as their command."""

import runpy

runpy.run_module("fairseq_plugins.cli.analyse", run_name="__main__", alter_sys=True)
