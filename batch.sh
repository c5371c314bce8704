# Sourced by the batch files (train_runs.sh, ...), which make a part of the grid (workflow/grid.yaml) with Snakemake.
# Their --help is the comment at their top. All of them read these variables:
#
# DATASETS="Furd SMS"   instead of all datasets of the grid
# JOBS=n (1)            jobs side by side
# PYTHON=path           the interpreter (the repository's .venv when there is one, else python3)

for option in "$@"; do
    [[ $option != --help && $option != -h ]] || exec sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$(basename "$0")"
done
if [[ ! ${JOBS:-1} =~ ^([1-9][0-9]*|all)$ ]]; then
    echo "$(basename "$0"): error: JOBS must be a number of at least 1, or all, not '$JOBS'" >&2
    exit 2
fi
cd ..
[[ ${PYTHON:-} || ! -x .venv/bin/python ]] || PYTHON=.venv/bin/python
if ! "${PYTHON:=python3}" -c 'from importlib.util import find_spec
assert all(map(find_spec, ("attention_dynamics", "snakemake", "torch")))' 2>/dev/null; then
    echo "$(basename "$0"): error: $PYTHON lacks packages; activate the environment with: source .venv/bin/activate (bash run.sh and bash test.sh, in the root, make it)" >&2
    exit 2
fi

# Make TARGET. The scripts of RULE are always called: they skip what is up to date and reject other options. They have
# locks of their own, so that several batch files can run at once.
grid() { # TARGET RULE CONFIG...
    local begun failed=0
    begun=$(mktemp)
    "$PYTHON" -m snakemake "$1" --cores "${JOBS:-1}" --nolock --retries 0 --rerun-triggers mtime \
        --quiet reason host --forcerun $2 --config "${@:3}" || failed=$?
    if ((failed)); then
        echo "$(basename "$0"): failed, exit code $failed. The last lines of the logs that say why:" >&2
        find ./*/logs -name '*.log' -newer "$begun" -exec tail -n 1 {} \; 2>/dev/null |
            grep -E '\.py: (error|failed|interrupted|terminated)' >&2 || true
    fi
    rm -f "$begun"
    return "$failed"
}

quoted() { # WORD...: the words, quoted for the shell, as a YAML string
    local text= quote="'"
    (($# == 0)) || printf -v text '%q ' "$@"
    echo "'${text//$quote/$quote$quote}'"
}

listed() { # "WORD WORD"
    echo "${1// /, }"
}

options() { # STEP OPTION...: the setting that adds the options to those of a step
    local step=$1
    shift
    echo "options={$step: $(quoted "$@")}"
}

datasets() { # FOLDER
    echo "$1={${DATASETS:+datasets: [$(listed "$DATASETS")]}}"
}
