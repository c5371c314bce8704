#!/usr/bin/env bash
# Dump α, β, Δ, accuracy and BLEU of every checkpoint of the grid, and train both baselines.
#
#   bash dump_logs.sh                           all five data sets
#   DATASETS=multi30k bash dump_logs.sh --eval_bleu last
#
# Options are passed on to eval_dump.py. What is up to date is skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../batch.sh

for dataset in ${DATASETS:-multi30k iwslt14 news_commentary_v14_en_nl news_commentary_v14_en_pt news_commentary_v14_it_pt}; do
    job "dump_$dataset" "$PYTHON" eval_dump.py --dataset "$dataset" --eval_bleu \
        --include_train_subset "$@"
    job "embedding_$dataset" "$PYTHON" embedding_beta.py --dataset "$dataset"
    job "ibm1_$dataset" "$PYTHON" ibm1_beta.py --dataset "$dataset"
done
finish
