#!/usr/bin/env bash
# The paper's two settings, 40 tokens of 40 and of 60 without repetition, and their comparison.
#
#   bash copying_runs.sh                       20 seeds of each, on all CPUs (or JOBS=n)
#   bash copying_runs.sh --num_seeds 4         options of seq2seq.py, passed on
#
# A finished setting is skipped. A log per setting goes to logs/; failures are listed at the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../batch.sh
JOBS=${JOBS:-all}

grid copying_figures copying "$(options copying "$@")"
