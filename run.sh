#!/usr/bin/env bash
# An experiment on its embedded data set, end to end: data, training runs, dumps, baselines, table, figures.
# Makes or reuses .venv and installs what is missing.
#
#   bash run.sh                    classification: about five minutes on two cores
#   bash run.sh translation        translation: about three minutes on two cores
#
# Called again, finished steps are skipped.
set -euo pipefail
experiment=${1:-classification}
if (($# > 1)) || [[ $experiment != classification && $experiment != translation ]]; then
    echo "run.sh: error: give classification (the default) or translation, not '$*'; for other data sets see README.md" >&2
    exit 2
fi
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$root/$experiment"
export DATASETS=toy JOBS=${JOBS:-2}

case $experiment in
    classification)
        [[ -f data/toy_about.json ]] || "$PYTHON" prepare_data.py --dataset toy --overwrite
        bash train_runs.sh --steps 300 --custom_saves 0,10,25,50,75,100,150,200
        bash dump_logs.sh --test_set_size 400 --threads 2
        bash embedding_runs.sh
        bash logistic_runs.sh
        "$PYTHON" collect_classification_stats.py --datasets toy --out_file results/toy.pkl \
            --include_kendall_tau --include_train_results
        ;;
    translation)
        [[ -f data/toy/about.json ]] || "$PYTHON" prepare_data.py --dataset toy --overwrite
        bash train_runs.sh --config configs/toy.json --epochs 12 --save_every 400 \
            --custom_saves 0,100,200,300,600
        bash dump_logs.sh --config configs/toy.json
        "$PYTHON" collect_translation_stats.py --datasets toy --out_file results/toy.pkl \
            --include_kendall_tau --include_train_results --include_bleu_results
        ;;
esac
"$PYTHON" plot_dynamics.py --dataset toy
