#!/usr/bin/env bash
# The paper's training grid: seven runs (normal_A .. normal_F, uniform) for each dataset, 4000 steps.
#
#   bash train_runs.sh                                all seven datasets, one run after another
#   DATASETS="Furd SMS" JOBS=2 bash train_runs.sh     two datasets, two runs side by side
#   bash train_runs.sh --steps 1500                   options of train_classifier.py, passed on
#
# Finished runs are skipped. A log per run goes to logs/; failures are listed at the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../batch.sh

grid classification_train_runs classification_train "$(datasets classification)" "$(options train "$@")"
