#!/usr/bin/env bash
# All of PAPA for one model on one task, with the paper's settings: constants, the order of the heads, and
# results for each number of constant heads and each seed.
#
#   bash papa_runs.sh bert-base-uncased cola
#   CACHE=true bash papa_runs.sh minilm rte --task_dir /path/to/RTE
#   HEADS="0 36 72" bash papa_runs.sh minilm wnut17_ner --train_file train.conll --validation_file dev.conll
#   bash papa_runs.sh minilm reviews --train_file a.csv --validation_file b.csv -- --num_train_epochs 3
#
# The last part of TASK, after _, is the task: one of GLUE, or ner, pos, chunk. Any other name is sequence
# classification of your own files. Options before -- are passed on to all scripts, those after it to
# run_papa_glue.py or run_papa_ner.py alone.
#
# HEADS="0 36 72"   numbers of constant heads (none, a quarter, half, three quarters, and all heads)
# SEEDS="0 1 2"     seeds of the results; the order is learned with the script's own
# CACHE=true        --cache_encoder_states for the results
#
# Writes outputs/{model}_{TASK}/constants, sorted and results/{heads}_seed{seed}. Finished runs are skipped.
# A log per run goes to logs/; failures are listed at the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source ../batch.sh
if (($# < 2)) || [[ $1 == -* || $2 == -* || $2 == */* ]]; then
    echo "papa_runs.sh: error: give a model and a task, such as: bash papa_runs.sh minilm cola" >&2
    exit 2
fi

model=$1 task=$2 for_all=() for_training=()
shift 2
while (($#)) && [[ $1 != -- ]]; do
    for_all+=("$1")
    shift
done
(($# == 0)) || for_training=("${@:2}")

name=$(basename "$model")_$task
if ! [[ ${task##*_} =~ ^(cola|mnli|mrpc|qnli|qqp|rte|sst2|stsb|wnli|ner|pos|chunk)$ ||
    " ${for_all[*]-}" =~ " --"(train_file|dataset_name|task_name) ]]; then
    echo "papa_runs.sh: error: the task $task is none of cola mnli mrpc qnli qqp rte sst2 stsb wnli ner pos chunk, nor ends in _ and one of them; files of your own need --train_file (and --validation_file)" >&2
    exit 2
fi
settings=("options={all: $(quoted ${for_all[@]+"${for_all[@]}"}), train: $(quoted ${for_training[@]+"${for_training[@]}"})}")
papa="runs: ['$model $task'], seeds: [$(listed "${SEEDS:-0 1 2}")]"
[[ -z ${CACHE:-} ]] || papa+=", options: {run: --cache_encoder_states $CACHE}"

grid papa_orders "papa_constants papa_order" "${settings[@]}" "papa={$papa}"
quarters='import json, sys; n = len(json.load(open(sys.argv[1]))); print(*(n * k // 4 for k in range(5)))'
heads=${HEADS:-$("$PYTHON" -c "$quarters" "papa/outputs/$name/sorted/sorted_heads.json")}
grid papa_runs papa_run "${settings[@]}" "papa={$papa, heads: {'$model': [$(listed "$heads")]}}"
