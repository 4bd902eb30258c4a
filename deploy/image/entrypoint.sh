#!/bin/sh
# Compiled code counts only where it could be written, too, so what the image has is copied to where that is: 2 MB.
set -e
scratch="${TMPDIR:-/tmp}"
if ! [ -w "$scratch" ]; then
    echo "kvlens: $scratch is not writable; mount an emptyDir or a tmpfs there" >&2
    exit 2
fi
if [ -z "$NUMBA_CACHE_DIR" ]; then
    export NUMBA_CACHE_DIR="$scratch/kvlens-compiled"
    [ -d "$NUMBA_CACHE_DIR" ] || cp -R /opt/kvlens/compiled "$NUMBA_CACHE_DIR"
fi
exec /opt/kvlens/bin/kvlens "$@"
