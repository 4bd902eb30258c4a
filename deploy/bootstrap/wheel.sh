#!/bin/sh
# The wheel works without the checkout: built, installed with the packages of the lock in an environment that has nothing
# else, and run from another directory. The demo needs all that is in it: settings, tables, boards, the page.
set -eu
cd "$(dirname "$0")/../.."
root=$(pwd)
place=$root/build/wheel
rm -rf "$place"

"$root/.venv/bin/python" -m hatchling build --target wheel --directory "$place"
"$root/.venv/bin/python" -m venv --without-pip "$place/venv"
pip=$(echo "$root"/deploy/bootstrap/pip-*.whl)
install() {
    "$place/venv/bin/python" -I "$pip/pip" --disable-pip-version-check --quiet install "$@"
}
install --no-deps --require-hashes --requirement "$root/deploy/locks/local.txt"
install --no-deps --no-index "$place"/kvlens-*.whl

cd "$place"
venv/bin/kvlens version
venv/bin/kvlens demo --seconds 30 --data-dir "$place/demo"
