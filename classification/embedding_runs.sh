#!/usr/bin/env bash
# β^px for each data set with the paper's settings: 60 epochs, learning rate 5e-5 for IMDB, Yelp and Amzn,
# 1.5e-4 for the others.
#
#   bash embedding_runs.sh
#   DATASETS="Furd SMS" JOBS=2 bash embedding_runs.sh
#
# Options are passed on to embedding_beta.py. What is up to date is skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../batch.sh

for dataset in ${DATASETS:-IMDB Furd AG_News Newsgroups Yelp Amzn SMS}; do
    case $dataset in
        IMDB | Yelp | Amzn) lr=5e-5 ;;
        *) lr=1.5e-4 ;;
    esac
    job "embedding_$dataset" "$PYTHON" embedding_beta.py --dataset "$dataset" --epochs 60 --lr "$lr" "$@"
done
finish
