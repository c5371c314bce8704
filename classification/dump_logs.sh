#!/usr/bin/env bash
# Dump α, β, Δ of every checkpoint of the grid: eval_dump.py for each data set.
#
#   bash dump_logs.sh                           all seven data sets
#   DATASETS="Furd SMS" JOBS=2 bash dump_logs.sh
#
# Options are passed on to eval_dump.py. Dumps that are up to date are skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../batch.sh

for dataset in ${DATASETS:-IMDB Furd AG_News Newsgroups Yelp Amzn SMS}; do
    job "dump_$dataset" "$PYTHON" eval_dump.py --dataset "$dataset" "$@"
done
finish
