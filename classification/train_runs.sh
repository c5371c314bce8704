#!/usr/bin/env bash
# The paper's training grid: seven runs (normal_A .. normal_F, uniform) for each data set, 4000 steps.
#
#   bash train_runs.sh                                all seven data sets, one run after another
#   DATASETS="Furd SMS" JOBS=2 bash train_runs.sh     two data sets, two runs side by side
#   bash train_runs.sh --steps 1500                   options of train_classifier.py, passed on
#
# Finished runs are skipped. A log per run goes to logs/; failures are listed at the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../batch.sh

for dataset in ${DATASETS:-IMDB Furd AG_News Newsgroups Yelp Amzn SMS}; do
    for seed in 20 13 14 15 16 17; do
        job "train_${dataset}_${seed}_normal" "$PYTHON" train_classifier.py --dataset "$dataset" \
            --seed "$seed" --steps 4000 --save_every 250 --custom_saves 0,10,50,100,150,200,250 "$@"
    done
    job "train_${dataset}_12_uniform" "$PYTHON" train_classifier.py --dataset "$dataset" \
        --seed 12 --uniform --steps 4000 --save_every 250 --custom_saves 0,10,50,100,150,200,250 "$@"
done
finish
