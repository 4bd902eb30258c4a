#!/bin/sh
# The documentation as a site in build/site, with the packages of deploy/locks/docs.txt in an environment of their own.
# A link or an anchor that leads nowhere, or a page that the navigation lacks, is an error.
set -eu
cd "$(dirname "$0")/../.."
place=build/docs-venv
lock=deploy/locks/docs.txt

if ! cmp -s "$lock" "$place/docs.txt"; then
    rm -rf "$place"
    mkdir -p build
    .venv/bin/python -m venv --without-pip "$place"
    "$place/bin/python" -I "$(echo deploy/bootstrap/pip-*.whl)/pip" --disable-pip-version-check --quiet install \
        --no-deps --require-hashes --requirement "$lock"
    cp "$lock" "$place/docs.txt"
fi
NO_MKDOCS_2_WARNING=1 "$place/bin/python" -m mkdocs build --strict
echo "to read it: $place/bin/python -m http.server --directory build/site --bind 127.0.0.1 8000"
