#!/usr/bin/env bash
# Dump α, β, Δ, accuracy and BLEU of every checkpoint of the grid, and train both baselines.
#
#   bash dump_logs.sh                           all five datasets
#   DATASETS=multi30k bash dump_logs.sh --eval_bleu last
#
# Options are passed on to eval_dump.py. Missing runs are not trained. What is up to date is skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../batch.sh

grid translation_dump_logs "translation_dump translation_embedding translation_ibm1" "$(datasets translation)" \
    "$(options dump "$@")" missing_runs=ignore
