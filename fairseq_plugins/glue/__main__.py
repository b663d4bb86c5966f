"""Entry point of `python -m fairseq_plugins.glue`, which results record as their command."""

import runpy

runpy.run_module("fairseq_plugins.evaluation.glue_command", run_name="__main__", alter_sys=True)
