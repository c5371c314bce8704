#!/usr/bin/env bash
# β^lr for each dataset: logistic_beta.py over its range of C.
#
#   bash logistic_runs.sh
#   DATASETS="Furd SMS" JOBS=2 bash logistic_runs.sh
#
# Options are passed on to logistic_beta.py. What is up to date is skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../batch.sh

grid classification_logistic_runs classification_logistic "$(datasets classification)" \
    "$(options logistic "$@")"
