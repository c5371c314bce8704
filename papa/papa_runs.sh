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
# SEEDS="0 1 2"     seeds of the results; the order is learnt with the script's own
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

model=$1 task=$2
shift 2
for_all=() for_training=()
while (($#)); do
    if [[ $1 == -- ]]; then
        for_training=("${@:2}")
        break
    fi
    for_all+=("$1")
    shift
done

name=$(basename "$model")_$task
out=outputs/$name
kind=glue
common=(--model_name_or_path "$model")
case ${task##*_} in
    ner | pos | chunk) kind=ner ;;&
    ner | pos | chunk | cola | mnli | mrpc | qnli | qqp | rte | sst2 | stsb | wnli)
        common+=(--task_name "${task##*_}")
        ;;
    *)
        if ! [[ " ${for_all[*]}" =~ " --"(train_file|dataset_name|task_name) ]]; then
            echo "papa_runs.sh: error: the task $task is none of cola mnli mrpc qnli qqp rte sst2 stsb wnli ner pos chunk, nor ends in _ and one of them; files of your own need --train_file (and --validation_file)" >&2
            exit 2
        fi
        ;;
esac
common+=(--max_seq_length 64 --pad_to_max_length true --use_papa_preprocess true --disable_tqdm true
    "${for_all[@]}")

run() { # NAME OPTION...
    job "${name}_$1" "$PYTHON" "run_papa_$kind.py" "${common[@]}" --do_train --do_eval \
        --per_device_train_batch_size 16 --per_device_eval_batch_size 16 --num_train_epochs 15 \
        --learning_rate 2e-5 --lr_scheduler_type constant --eval_strategy epoch --save_strategy no \
        --use_freeze_extract_pooler true --static_heads_dir "$out/constants" \
        "${for_training[@]}" "${@:2}"
}

job "${name}_constants" "$PYTHON" "run_papa_${kind}_avgs_creator.py" "${common[@]}" \
    --per_device_train_batch_size 8 --output_dir "$out/constants"
finish
run sorted --sort_calculating true --output_dir "$out/sorted"
finish

quarters='import json, sys; n = len(json.load(open(sys.argv[1]))); print(*(n * k // 4 for k in range(5)))'
# Runs side by side would each take all cores.
((JOBS == 1)) || export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
numbers=${HEADS:-$("$PYTHON" -c "$quarters" "$out/sorted/sorted_heads.json")}
for seed in ${SEEDS:-0 1 2}; do
    for heads in $numbers; do
        run "${heads}_seed$seed" --grad_for_classifier_only true --sorting_heads_dir "$out/sorted" \
            ${CACHE:+--cache_encoder_states "$CACHE"} \
            --static_heads_num "$heads" --seed "$seed" --output_dir "$out/results/${heads}_seed$seed"
    done
done
finish
