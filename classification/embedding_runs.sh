#!/usr/bin/env bash
# β^px for each dataset with the paper's settings: 60 epochs, learning rate 5e-5 for IMDB, Yelp and Amzn,
# 1.5e-4 for the others.
#
#   bash embedding_runs.sh
#   DATASETS="Furd SMS" JOBS=2 bash embedding_runs.sh
#
# Options are passed on to embedding_beta.py. What is up to date is skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../batch.sh

grid classification_embedding_runs classification_embedding "$(datasets classification)" \
    "$(options embedding "$@")"
