#!/usr/bin/env bash
# The paper's training grid: three runs (normal_A, normal_B, uniform) for each dataset.
#
#   bash train_runs.sh                                  all five datasets, one run after another
#   DATASETS=multi30k JOBS=2 bash train_runs.sh         one dataset, two runs side by side
#   bash train_runs.sh --epochs 4                       options of train_translation.py, passed on
#
# Finished runs are skipped. A log per run goes to logs/; failures are listed at the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../batch.sh

grid translation_train_runs translation_train "$(datasets translation)" "$(options train "$@")"
