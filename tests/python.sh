#!/bin/sh
# Makes the virtual environment in which the lab runs from this checkout: PYTHON VENV.
set -eu
python=$1
venv=$2

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "Knee needs Python 3.11 or newer as '$python' (or name one: make PYTHON=python3.12)." >&2
    exit 1
fi
if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    # Debian ships it apart from the interpreter.
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
    else
        echo "This Python cannot make virtual environments. Run: sudo apt-get install python3-venv" >&2
        exit 1
    fi
fi
"$python" -m venv "$venv"

# The checkout's package is used in place, so that a change in it needs no installation.
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
printf '%s\n' "$PWD/python" >"$site/knee.pth"
printf '#!%s\nimport sys\n\nfrom knee.__main__ import main\n\nsys.exit(main())\n' "$PWD/$venv/bin/python" >"$venv/bin/knee"
chmod +x "$venv/bin/knee"
