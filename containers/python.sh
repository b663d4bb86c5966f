#!/usr/bin/env bash
# The interpreter of the image that containers/fairseq-pe.def makes: PYTHON of scripts/*.sh.
#
#   FAIRSEQ_PE_IMAGE   the image, where all nodes see it
#   FAIRSEQ_PE_BIND    further places that Slurm's commands need here, separated by commas
#
# A table's program calls sbatch, squeue, scontrol and srun, so these come from this machine, with
# their libraries, their configuration, munge's socket and the names of users. What srun starts is
# outside the image again, and comes in through this file.
set -euo pipefail

if [[ ! -f "${FAIRSEQ_PE_IMAGE:-}" ]]; then
    echo "FAIRSEQ_PE_IMAGE must be an image made from containers/fairseq-pe.def, but is" \
        "'${FAIRSEQ_PE_IMAGE:-}' instead." >&2
    exit 2
fi

# What srun starts has the PATH of the image, and needs that of the machine.
export FAIRSEQ_PE_PATH="${FAIRSEQ_PE_PATH:-$PATH}"
PATH="$FAIRSEQ_PE_PATH"

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
binds=(--bind "$root")
for path in /etc/passwd /etc/group /etc/slurm /run/slurm /run/munge /usr/lib64/slurm \
    /usr/lib/x86_64-linux-gnu/slurm /usr/lib/x86_64-linux-gnu/slurm-wlm; do
    if [[ -e "$path" ]]; then binds+=(--bind "$path"); fi
done
for name in sbatch squeue scontrol srun; do
    if path="$(command -v "$name")"; then binds+=(--bind "$path:/usr/local/bin/$name"); fi
done
if [[ -n "${FAIRSEQ_PE_BIND:-}" ]]; then binds+=(--bind "$FAIRSEQ_PE_BIND"); fi

export FAIRSEQ_PE_PYTHON="$root/containers/python.sh"
exec apptainer exec --nv "${binds[@]}" "$FAIRSEQ_PE_IMAGE" \
    /opt/fairseq-plugins/.venv/bin/python "$@"
