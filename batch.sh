# Sourced by the batch files: runs jobs, JOBS of them side by side, a log file for each, and goes on after
# a failure. Use: source ../batch.sh; job NAME COMMAND...; finish
# With --help among the options, the comment at the top of the batch file is printed instead.
#
# JOBS=n (1)     how many run side by side
# PYTHON=path    the interpreter (the repository's .venv when there is one, else python3)

for option in "$@"; do
    if [[ $option == --help || $option == -h ]]; then
        sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$(basename "$0")"
        exit 0
    fi
done

JOBS=${JOBS:-1}
if ! [[ $JOBS =~ ^[1-9][0-9]*$ ]]; then
    echo "$(basename "$0"): error: JOBS must be a whole number above 0, not '$JOBS'" >&2
    exit 2
fi
if [[ -z ${PYTHON:-} ]]; then
    PYTHON=../.venv/bin/python
    [[ -x $PYTHON ]] || PYTHON=python3
fi
# Here, once: each job would fail on it. Nothing heavy is imported.
if ! lacking=$("$PYTHON" -c 'from importlib.util import find_spec
names = "attention_dynamics", "numpy", "torch"
print(*(name for name in names if not find_spec(name)), sep=", ")' 2>/dev/null); then
    lacking="all packages, or does not run"
fi
if [[ $lacking ]]; then
    echo "$(basename "$0"): error: $PYTHON lacks $lacking: activate the environment with: source ../.venv/bin/activate (bash run.sh and bash test.sh, in the root, make it)" >&2
    exit 2
fi
mkdir -p logs
failures=$(mktemp)
reasons=$(mktemp) # of failures, each said once
trap 'rm -f "$failures" "$reasons"' EXIT
trap 'stop_jobs 130' INT
trap 'stop_jobs 143' TERM

stop_jobs() {
    trap - INT TERM
    echo "$(basename "$0"): stopped, ending $(running_jobs) running job(s)" >&2
    # Each job is a subshell around the command that works: that is ended, and waited for, since it
    # may have a training state to write.
    local shell
    for shell in $(jobs -rp); do
        kill -TERM "$shell" 2>/dev/null || true
        pkill -TERM -P "$shell" 2>/dev/null || true
    done
    wait
    exit "$1"
}

running_jobs() {
    local running
    running=$(jobs -rp | wc -l) || true # a signal to all may end the two that count
    echo "${running:-0}"
}

job() { # NAME COMMAND...
    local name=$1
    shift
    while (($(running_jobs) >= JOBS)); do sleep 0.1 || true; done
    (
        # A signal to all of the group comes here, too: the shell stays until its command has ended.
        stopped=
        trap 'stopped=yes' TERM
        echo "start  $name (logs/$name.log)"
        if "$@" >"logs/$name.log" 2>&1; then
            echo "done   $name: $(tail -n 1 "logs/$name.log")"
        elif [[ $stopped ]]; then
            echo "ended  $name: $(tail -n 1 "logs/$name.log")"
        else
            reason=$(tail -n 1 "logs/$name.log")
            if grep -qxF -- "$reason" "$reasons"; then
                echo "FAILED $name: for the same reason" >&2
            else
                echo "$reason" >>"$reasons"
                echo "FAILED $name: $reason" >&2
            fi
            echo "$name (logs/$name.log)" >>"$failures"
        fi
    ) &
}

finish() {
    # "wait" alone would return at once on a signal; the traps above then end the children.
    wait
    if [[ -s $failures ]]; then
        echo "$(wc -l <"$failures") job(s) failed:" >&2
        sort "$failures" | sed 's/^/  /' >&2
        exit 1
    fi
}
