#!/bin/sh
# Compiled code counts only where it could be written, too, so what the image has is copied to where that is: 2 MB.
set -e
# The first process of a container gets no signal that it has no handler for.
trap 'exit 143' TERM
trap 'exit 130' INT
here="${0%/bin/*}"
scratch="${TMPDIR:-/tmp}"
if ! [ -w "$scratch" ]; then
    echo "kvlens: $scratch is not writable; mount an emptyDir or a tmpfs there" >&2
    exit 2
fi
if [ -z "$NUMBA_CACHE_DIR" ]; then
    export NUMBA_CACHE_DIR="$scratch/kvlens-compiled"
    if ! [ -d "$NUMBA_CACHE_DIR" ]; then
        # An emptyDir outlives a container that was killed meanwhile: half a copy must not count as one.
        rm -rf "$NUMBA_CACHE_DIR.part"
        cp -R "$here/compiled" "$NUMBA_CACHE_DIR.part"
        mv "$NUMBA_CACHE_DIR.part" "$NUMBA_CACHE_DIR"
    fi
fi
# Blocked, a signal waits until Python has a handler: pipeline/cli/entry.py lets it in.
exec env --block-signal=TERM,INT "$here/bin/kvlens" "$@"
