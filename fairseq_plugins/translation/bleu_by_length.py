"""Former place of evaluation/bleu_by_length.py, which older results record as their command."""

import runpy

if __name__ == "__main__":
    runpy.run_module(
        "fairseq_plugins.evaluation.bleu_by_length", run_name="__main__", alter_sys=True
    )
