#!/usr/bin/env bash
# Dump α, β, Δ of every checkpoint of the grid: eval_dump.py for each dataset.
#
#   bash dump_logs.sh                           all seven datasets
#   DATASETS="Furd SMS" JOBS=2 bash dump_logs.sh
#
# Options are passed on to eval_dump.py. Missing runs are not trained. Dumps that are up to date are skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../batch.sh

grid classification_dump_logs classification_dump "$(datasets classification)" "$(options dump "$@")" \
    missing_runs=ignore
