"""Planning, starting, watching and resuming of runs, here or as Slurm jobs.

A run is a cell of a table from one seed. To read it, follow `fairseq-pe table NAME`:

1. `table_command` plans the runs (`plan`; with settings of the user's own, `studies`), leaves out
   those that are done (`run_state`) and checks data, disk and GPUs (`preflight`, with
   `cost_estimates`). Then it trains them here, submits them, or prints their commands.
2. Here, `table_runner` has workers, one for each of `--jobs`. A worker takes a run from
   `worker_pool`, locks it (`checkpoints`), and gives it to `run_execution`, which trains, measures
   and writes the result. `launcher` runs fairseq's commands, many of them in forks of one process
   that has imported torch (`preloaded`). `progress` shows the runs, `interruption` stops them.
3. Under Slurm, `slurm_submission` makes the jobs (`slurm_job`) of runs and of what they start from,
   each after those that it depends on. Each job is the same command for its runs, whose trainings
   save often (`training_job`). `slurm_queue` reads and requeues jobs.

The state of a run is in files alone, so that any process can go on with it:

- its result, below results/, once it is done;
- `run.json` beside its checkpoints (`journal`): configuration, data, time, failure, whether
  `--force` replaces an older result;
- its checkpoints and logs; a lock file beside its folder while a process works on it;
- `jobs.jsonl` in the folder of its table and scale, with the Slurm jobs that were submitted.

`status` reads all of them and starts nothing; `phase_times` reads logs.

Other commands: `paper` (all tables of a paper), `text_comparison` with `time_budget`
(`fairseq-pe compare`), `finetune_command` with `finetuning`, `packing`, and `rehearsal` with
`rehearsed_training` (scale paper without GPUs).
"""
