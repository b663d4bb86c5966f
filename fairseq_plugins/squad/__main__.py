"""Entry point of `python -m fairseq_plugins.squad`, which results record as their command."""

import runpy

runpy.run_module("fairseq_plugins.evaluation.squad_command", run_name="__main__", alter_sys=True)
