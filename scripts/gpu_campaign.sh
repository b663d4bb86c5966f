#!/usr/bin/env bash
# All that should be measured whenever a GPU is at hand, within a budget of minutes; called again, it
# goes on where it stopped. All options: scripts/gpu_campaign.sh --help
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

find_python
exec "$PYTHON" -m benchmarks.gpu_campaign "$@"
