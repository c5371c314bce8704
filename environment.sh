# Sourced by run.sh and test.sh: creates or reuses .venv, installs missing packages, sets PYTHON.
# pip is only called if requirements.txt or pyproject.toml changed since the last call: .venv/installed.txt holds their
# content and, as its last line, the directory for which .venv was made.
# Needs bash 3.2 or newer (macOS has 3.2). Windows is not supported, except in WSL.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)

fail() { # MESSAGE
    echo "$(basename "$0"): error: $1" >&2
    exit 2
}

is_new_enough() { # PYTHON
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python}; do
        if is_new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

# The paths in a .venv that was copied or moved together with its repository: otherwise it runs the old library.
correct_paths() { # OLD_ROOT
    "$PYTHON" -I -S - "$1/" "$root/" <<'EOF'
import pathlib, sys

old, new = (path.encode() for path in sys.argv[1:])
venv = pathlib.Path(sys.argv[2], ".venv")
for pattern in ("pyvenv.cfg", "bin/*", "lib/python*/site-packages/*editable*"):
    for path in venv.glob(pattern):
        if path.is_file() and not path.is_symlink() and old in (content := path.read_bytes()):
            path.write_bytes(content.replace(old, new))
EOF
}

case $(uname -s 2>/dev/null) in
    MINGW* | MSYS* | CYGWIN*) fail "Windows is not supported; use WSL" ;;
esac
[[ ${BASH_SOURCE[0]} != "$0" ]] || fail "is sourced by run.sh and test.sh; call one of those"
if ! "$root/.venv/bin/python" -c '' 2>/dev/null; then
    if ! found=$(find_python); then
        fail "Python 3.11 or newer is needed; found $(python3 --version 2>/dev/null || echo 'no python3'). Install it, or name one: PYTHON=/path/to/python3.11 bash $(basename "$0")"
    fi
    echo "creating .venv with $("$found" --version)"
    rm -rf "$root/.venv"
    "$found" -m venv "$root/.venv"
fi
PYTHON=$root/.venv/bin/python
is_new_enough "$PYTHON" || fail ".venv holds $("$PYTHON" --version), but 3.11 or newer is needed: remove .venv and call again"

wanted=$(cat "$root/requirements.txt" "$root/pyproject.toml")
stamp=$root/.venv/installed.txt
if [[ -f $stamp ]]; then
    old_root=$(tail -n 1 "$stamp")
    if [[ $old_root != "$root" ]]; then
        echo "this directory was copied or moved from $old_root: correcting the paths in .venv"
        correct_paths "$old_root"
        printf '%s\n%s\n' "$(sed '$d' "$stamp")" "$root" >"$stamp"
    fi
fi
if [[ ! -f $stamp || $(cat "$stamp") != "$wanted"$'\n'"$root" ]]; then
    echo "installing requirements.txt into .venv (once; takes some minutes, torch is large)"
    # A .venv whose making was interrupted has no pip.
    "$PYTHON" -c 'import pip' 2>/dev/null || "$PYTHON" -m ensurepip >/dev/null ||
        fail ".venv has no pip: remove .venv and call again"
    (cd "$root" && "$PYTHON" -m pip install --disable-pip-version-check -r requirements.txt)
    printf '%s\n%s\n' "$wanted" "$root" >"$stamp"
fi
export PYTHON
