# Sourced by run.sh and test.sh: makes or reuses .venv and installs what is missing; sets PYTHON.
# A second call installs nothing: the stamp inside .venv holds what was asked for last time.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

if ! "$root/.venv/bin/python" -c '' 2>/dev/null; then
    if ! found=$(find_python); then
        echo "$(basename "$0"): error: Python 3.11 or newer is needed; found" \
            "$(python3 --version 2>/dev/null || echo 'no python3'). Install it, or name one: PYTHON=/path/to/python3.11 bash $(basename "$0")" >&2
        exit 2
    fi
    echo "making .venv with $("$found" --version)"
    rm -rf "$root/.venv"
    "$found" -m venv "$root/.venv"
fi
PYTHON=$root/.venv/bin/python
if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "$(basename "$0"): error: .venv holds $("$PYTHON" --version), but 3.11 or newer is needed: remove .venv and call again" >&2
    exit 2
fi
wanted=$(cat "$root/requirements.txt" "$root/pyproject.toml"; echo "$root")
stamp=$root/.venv/installed.txt
if [[ ! -f $stamp || $(cat "$stamp") != "$wanted" ]]; then
    echo "installing requirements.txt into .venv (once; some minutes, torch is large)"
    (cd "$root" && "$PYTHON" -m pip install --quiet --disable-pip-version-check -r requirements.txt)
    echo "$wanted" >"$stamp"
fi
export PYTHON
