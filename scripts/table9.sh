#!/usr/bin/env bash
# Times the rows of the LRPE paper's Table 9 against Base and renders results/table9/<cpu|gpu>.md.
# All options: scripts/table9.sh --help
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

find_python
exec "$PYTHON" -m benchmarks.table9 "$@"
