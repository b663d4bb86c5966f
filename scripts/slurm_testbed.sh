#!/usr/bin/env bash
# A Slurm of one node for tests, in a folder of its own: CPUs and eight GPUs that are only declared.
#
#   scripts/slurm_testbed.sh up DIR && source DIR/environment   # sbatch, squeue and srun now use it
#   scripts/slurm_testbed.sh restart DIR                        # slurmctld alone, its jobs stay
#   scripts/slurm_testbed.sh crash DIR                          # the node dies, and comes back
#   scripts/slurm_testbed.sh down DIR                           # ends all jobs and daemons
#   scripts/slurm_testbed.sh install                            # Debian's packages
#
# Partitions: `low` (the default), whose jobs are requeued for those of `high`. It needs root, since
# slurmd starts jobs as their users, and Debian's slurmctld, slurmd, slurm-client and munge. Its exit
# status is 3 where there cannot be one for want of these, and 1 where something fails.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

CPUS=8 GPUS=8
PACKAGES=(slurmctld slurmd slurm-client munge)

fail() {
    log "$*"
    exit 1
}

refuse() {
    log "$*"
    exit 3
}

require() {
    [[ $EUID -eq 0 ]] || refuse "it needs root: slurmd starts jobs as their users"
}

installed() {
    command -v slurmctld slurmd munged sbatch squeue srun >/dev/null
}

install_packages() {
    require
    installed && return
    command -v apt-get >/dev/null || refuse "there is no apt-get; it needs ${PACKAGES[*]}"
    apt-get update -qq >&2 || log "apt-get update failed; trying with the lists there are"
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
        "${PACKAGES[@]}" >&2 || refuse "apt-get cannot install ${PACKAGES[*]}"
}

free_ports() {
    python3 - "$1" <<'PY'
import socket, sys

sockets = [socket.create_server(("", 0)) for _ in range(int(sys.argv[1]))]
print(*(one.getsockname()[1] for one in sockets))
PY
}

configure() {
    local controller daemon host
    read -r controller daemon <<<"$(free_ports 2)"
    host="$(hostname -s)"
    cat >"$DIR/slurm.conf" <<CONF
ClusterName=testbed
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmctldPort=$controller
SlurmdPort=$daemon
AuthType=auth/munge
CryptoType=crypto/munge
# A requeued job waits until the credentials of its last start are old: two minutes by default.
AuthInfo=socket=$DIR/munge/socket,cred_expire=5
StateSaveLocation=$DIR/state
SlurmdSpoolDir=$DIR/spool
SlurmctldPidFile=$DIR/slurmctld.pid
SlurmdPidFile=$DIR/slurmd.pid
SlurmctldLogFile=$DIR/slurmctld.log
SlurmdLogFile=$DIR/slurmd.log
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=2,bf_interval=5,batch_sched_delay=0
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=5
MinJobAge=3600
BatchStartTimeout=2
ReturnToService=2
GresTypes=gpu
NodeName=$host NodeAddr=127.0.0.1 CPUs=$CPUS RealMemory=$((CPUS * 4096)) Gres=gpu:$GPUS State=UNKNOWN
PartitionName=low Nodes=$host Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=0 MaxTime=INFINITE
PartitionName=high Nodes=$host PriorityTier=2 PreemptMode=OFF MaxTime=INFINITE
CONF
    # Any files do for devices; Slurm numbers them in CUDA_VISIBLE_DEVICES.
    touch $(seq -f "$DIR/gpu%g" 0 $((GPUS - 1)))
    echo "Name=gpu File=$DIR/gpu[0-$((GPUS - 1))]" >"$DIR/gres.conf"
    echo "export SLURM_CONF='$DIR/slurm.conf'" >"$DIR/environment"
    export SLURM_CONF="$DIR/slurm.conf"
}

start_munge() {
    install -d -m 0700 "$DIR/munge"
    (umask 077 && head -c 128 /dev/urandom >"$DIR/munge/key")
    munged --force --key-file="$DIR/munge/key" --socket="$DIR/munge/socket" \
        --pid-file="$DIR/munge/pid" --log-file="$DIR/munge/log" --seed-file="$DIR/munge/seed" \
        --num-threads=2 || fail "munged does not start: $(tail -n 3 "$DIR/munge/log")"
}

# Waits until a command succeeds; some seconds at most.
await() {
    local tries="$1"
    shift
    until "$@" >/dev/null 2>&1; do
        ((tries-- > 0)) || return 1
        sleep 0.3
    done
}

is_idle() {
    [[ "$(sinfo -h -o %T | sort -u)" == idle ]]
}

up() {
    require
    installed || refuse "there is no Slurm: apt-get install ${PACKAGES[*]}, or '$0 install'"
    [[ ! -e "$DIR/slurm.conf" ]] || fail "$DIR has a testbed already; '$0 down $DIR' ends it"
    mkdir -p "$DIR"
    DIR="$(cd "$DIR" && pwd)"
    install -d -m 0755 "$DIR/state" "$DIR/spool"
    configure
    start_munge
    slurmctld || fail "slurmctld does not start: $(tail -n 3 "$DIR/slurmctld.log")"
    await 50 scontrol ping || fail "slurmctld does not answer: $(tail -n 3 "$DIR/slurmctld.log")"
    slurmd || fail "slurmd does not start: $(tail -n 3 "$DIR/slurmd.log")"
    await 100 is_idle || fail "the node does not come up: $(tail -n 3 "$DIR/slurmd.log")"
    log "up: source $DIR/environment"
}

# Ends the process whose number is in a file, which it made.
end() {
    local file="$1" number
    [[ -s "$file" ]] || return 0
    number="$(<"$file")"
    kill "$number" 2>/dev/null || return 0
    for _ in {1..50}; do
        kill -0 "$number" 2>/dev/null || return 0
        sleep 0.2
    done
    kill -9 "$number" 2>/dev/null || true
}

is_empty() {
    ! squeue -h -t all -o %T | grep -qE 'RUNNING|COMPLETING|SUSPENDED'
}

down() {
    [[ -e "$DIR/slurm.conf" ]] || return 0
    DIR="$(cd "$DIR" && pwd)"
    export SLURM_CONF="$DIR/slurm.conf"
    squeue -h -o %A 2>/dev/null | xargs -r scancel 2>/dev/null || true
    await 60 is_empty || log "some jobs do not end"
    end "$DIR/slurmd.pid"
    end "$DIR/slurmctld.pid"
    end "$DIR/munge/pid"
    rm -rf "$DIR"
}

restart() {
    export SLURM_CONF="$DIR/slurm.conf"
    end "$DIR/slurmctld.pid"
    slurmctld || fail "slurmctld does not start: $(tail -n 3 "$DIR/slurmctld.log")"
    await 50 scontrol ping || fail "slurmctld does not answer: $(tail -n 3 "$DIR/slurmctld.log")"
}

# As a power cut: the daemon of the node and all processes of its jobs end at once.
crash() {
    export SLURM_CONF="$DIR/slurm.conf"
    local processes=() parents=()
    mapfile -t processes < <(scontrol listpids 2>/dev/null | awk 'NR > 1 && $1 > 1 { print $1 }')
    # Parents first: the one that is not in the list is Slurm's own, which would report the end.
    if ((${#processes[@]})); then
        mapfile -t parents < <(ps -o ppid= -p "${processes[@]}" | awk '$1 > 1 { print $1 }' | sort -u)
    fi
    kill -9 "$(<"$DIR/slurmd.pid")" "${parents[@]}" "${processes[@]}" 2>/dev/null || true
    sleep 20 # a job of some seconds would count as one that is still starting
    slurmd || fail "slurmd does not start: $(tail -n 3 "$DIR/slurmd.log")"
}

DIR="${2:-}"
case "${1:-}" in
install) install_packages ;;
up | down | restart | crash)
    [[ -n "$DIR" ]] || fail "usage: $0 $1 DIR"
    "$1"
    ;;
*) fail "usage: $0 install | up DIR | restart DIR | crash DIR | down DIR" ;;
esac
