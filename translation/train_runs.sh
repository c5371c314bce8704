#!/usr/bin/env bash
# The paper's training grid: three runs (normal_A, normal_B, uniform) for each data set.
#
#   bash train_runs.sh                                  all five data sets, one run after another
#   DATASETS=multi30k JOBS=2 bash train_runs.sh         one data set, two runs side by side
#   bash train_runs.sh --epochs 4                       options of train_translation.py, passed on
#
# Finished runs are skipped. A log per run goes to logs/; failures are listed at the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../batch.sh

for dataset in ${DATASETS:-multi30k iwslt14 news_commentary_v14_en_nl news_commentary_v14_en_pt news_commentary_v14_it_pt}; do
    case $dataset in
        multi30k) epochs=20 ;;
        news_commentary_v14_en_nl | news_commentary_v14_it_pt) epochs=40 ;;
        *) epochs=30 ;;
    esac
    for run in "20 normal" "12 uniform" "13 normal"; do
        read -r seed attention <<<"$run"
        uniform=()
        [[ $attention == normal ]] || uniform=(--uniform)
        job "train_${dataset}_${seed}_$attention" "$PYTHON" train_translation.py \
            --dataset "$dataset" --seed "$seed" "${uniform[@]}" --epochs "$epochs" \
            --save_every 2000 --custom_saves 0,50,100,500,1000,1500 "$@"
    done
done
finish
