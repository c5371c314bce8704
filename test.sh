#!/usr/bin/env bash
# Run the tests: makes or reuses .venv, installs what is missing, then ruff and pytest.
#
#   bash test.sh                  the default tests (not those marked slow or faults)
#   bash test.sh -k agreement     options of pytest, passed on
#
# Tests are run side by side, in one process for each CPU.
set -euo pipefail
if [[ ${1:-} == --help || ${1:-} == -h ]]; then
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 0
fi
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$root"
export HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1

"$PYTHON" -m ruff check .
"$PYTHON" -m ruff format --check .
"$PYTHON" -m pytest --numprocesses auto --maxprocesses 8 --dist worksteal "$@"
