#!/usr/bin/env bash
# The classification experiment on the embedded data set, end to end: data, seven training runs, dumps,
# baselines, table, figures. Makes or reuses .venv and installs what is missing.
#
#   bash run.sh
#
# About five minutes on two cores. Called again, finished steps are skipped.
set -euo pipefail
if (($#)); then
    echo "run.sh: error: takes no arguments, not '$*'; for other data sets see README.md" >&2
    exit 2
fi
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$root/classification"

export DATASETS=toy JOBS=${JOBS:-2}
[[ -f data/toy_about.json ]] || "$PYTHON" prepare_data.py --dataset toy --overwrite
bash train_runs.sh --steps 300 --custom_saves 0,10,25,50,75,100,150,200
bash dump_logs.sh --test_set_size 400 --threads 2
bash embedding_runs.sh
bash logistic_runs.sh
"$PYTHON" collect_classification_stats.py --datasets toy --out_file results/toy.pkl \
    --include_kendall_tau --include_train_results
"$PYTHON" plot_dynamics.py --dataset toy
